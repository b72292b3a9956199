#!/usr/bin/env python3
"""Records small folders of Hugging Face models as transformers writes them, with the logits that it computes.

    python scripts/record_golden_huggingface.py        (needs the packages torch, transformers, timm and safetensors)

Writes tests/golden/huggingface/<case>/, of models of images tests/golden/vision_folders/<case>/: config.json, the weights (single, sharded, f32, bf16, f16, with and without the
prefix of the language model; of models of images also as timm writes them), and logits.safetensors with input [samples, tokens]
or [samples, height, width, 3], some targets, for BERT attention_mask, and logits as f64 gives them. Also tests/golden/language/<model>.json: the config.json of the models of
scripts/record_golden_language.py, and the seeds of tests/fuzz/huggingface.cpp.
"""
import itertools
import json
import os
import shutil
import tempfile

import timm
import torch
import transformers
from safetensors.torch import save_file
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, ResNetConfig, ResNetForImageClassification,
                          ViTConfig, ViTForImageClassification)

import record_golden_language
from record_golden_language import EAGER, routed

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
OUT, IMAGES_OUT = os.path.join(GOLDEN, "huggingface"), os.path.join(GOLDEN, "vision_folders")
SEEDS = os.path.join(GOLDEN, "..", "fuzz", "seeds", "huggingface")
SAMPLES, TOKENS, VOCAB, SIDE, CLASSES = 2, 12, 31, 32, 5
COMMON = dict(vocab_size=VOCAB, attn_implementation="eager", bos_token_id=1, eos_token_id=2)
GPT2 = dict(COMMON, n_embd=16, n_layer=2, n_head=4, n_positions=16, initializer_range=0.2)
SMALL = dict(COMMON, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
             max_position_embeddings=32, initializer_range=0.2)
BERT = dict(COMMON, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, max_position_embeddings=16,
            initializer_range=0.2)
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 1000.0}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}


def cases():
    """name: (model, dtype of the file, save_pretrained's keys)"""
    f32, bf16, f16 = torch.float32, torch.bfloat16, torch.float16
    return {
        "gpt2": (GPT2LMHeadModel(GPT2Config(**GPT2)), f32, {}),
        "gpt2_base": (GPT2LMHeadModel(GPT2Config(n_inner=20, activation_function="relu", layer_norm_epsilon=1e-3, **GPT2)), bf16, {}),
        "gpt2_untied": (GPT2LMHeadModel(GPT2Config(tie_word_embeddings=False, resid_pdrop=0.2, embd_pdrop=0.3, attn_pdrop=0,
                                                   **GPT2)), f32, {}),
        "llama": (LlamaForCausalLM(LlamaConfig(rope_parameters=LLAMA3, rms_norm_eps=1e-5, **SMALL)), f32,
                  {"max_shard_size": "8KB"}),
        "llama_tied": (LlamaForCausalLM(LlamaConfig(rope_parameters=LINEAR, tie_word_embeddings=True, head_dim=6,
                                                    attention_bias=True, mlp_bias=True, hidden_act="gelu", **SMALL)), f16, {}),
        "qwen2": (Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True, use_sliding_window=True, sliding_window=5,
                                               max_window_layers=0, **SMALL)), f32, {}),
        "qwen3": (Qwen3ForCausalLM(Qwen3Config(head_dim=8, rms_norm_eps=1e-4, **SMALL)), bf16, {}),
        "bert": (BertForMaskedLM(BertConfig(**BERT)), f32, {}),
        "bert_classifier": (BertForSequenceClassification(BertConfig(num_labels=3, hidden_act="gelu_new", type_vocab_size=3,
                                                                     classifier_dropout=0.3, **BERT)), f32, {}),
    }


def later_cases():
    """Made after the others are recorded, whose random numbers stay as they were."""
    yield "mixtral", (routed(MixtralForCausalLM(MixtralConfig(num_local_experts=4, num_experts_per_tok=2, head_dim=6,
                                                              sliding_window=7, **EAGER, **SMALL))), torch.bfloat16, {})
    yield "qwen3_moe", (routed(Qwen3MoeForCausalLM(Qwen3MoeConfig(
        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=10, norm_topk_prob=True, head_dim=8, output_router_logits=True,
        router_aux_loss_coef=0.05, **EAGER, **SMALL))), torch.float32, {"max_shard_size": "10KB"})


def image_cases():
    """Made after those of texts. Labels have names, as in the folders of the hub."""
    labels = {"id2label": {i: f"kind {i}" for i in range(CLASSES)}, "label2id": {f"kind {i}": i for i in range(CLASSES)}}
    yield "resnet", ResNetForImageClassification(ResNetConfig(embedding_size=2, hidden_sizes=[8, 16, 32, 64], **labels))
    yield "resnet_basic", ResNetForImageClassification(ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8, 16, 32], depths=[2, 2, 2, 2], layer_type="basic", **labels))
    yield "vit", ViTForImageClassification(ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=SIDE, patch_size=8,
        attn_implementation="eager", **labels))
    sizes = {"img_size": SIDE, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "mlp_ratio": 1.5}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=CLASSES, **sizes)
    model.dltrain_sizes = sizes
    yield "timm_vit", model


def record_images(name, model):
    folder = os.path.join(IMAGES_OUT, name)
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            if tensor.dim() == 1:
                tensor.mul_(1 + 0.1 * torch.rand_like(tensor)).add_(0.1 * torch.rand_like(tensor))
    if name.startswith("timm"):
        timm.models.save_for_hf(model, folder, model_args=model.dltrain_sizes, safe_serialization=True)
    else:
        model.save_pretrained(folder)
    images = torch.randn(SAMPLES, 3, SIDE, SIDE)
    with torch.no_grad():
        logits = model.double().eval()(images.double())
    tensors = {"input": images.permute(0, 2, 3, 1).contiguous(), "target": torch.arange(SAMPLES).int(),
               "logits": getattr(logits, "logits", logits).float()}
    save_file(tensors, os.path.join(folder, "logits.safetensors"))
    for file in os.listdir(folder):
        os.chmod(os.path.join(folder, file), 0o644)
    shutil.copy(os.path.join(folder, "config.json"), os.path.join(SEEDS, name))


def record_text(name, model, dtype, keys):
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:  # away from 1 and 0, so that each is seen to be read
                p += 0.1 * torch.randn_like(p)
    model = model.to(dtype)
    folder = os.path.join(OUT, name)
    (model.transformer if name == "gpt2_base" else model).save_pretrained(folder, **keys)
    ids = torch.randint(3, VOCAB, (SAMPLES, TOKENS))
    tensors = {"input": ids.int(), "target": torch.arange(SAMPLES).int() if name == "bert_classifier" else ids.int()}
    inputs = {"input_ids": ids}
    if name.startswith("bert"):
        mask = (torch.arange(TOKENS)[None] < torch.tensor([[TOKENS], [TOKENS - 4]])).int()
        tensors["attention_mask"], inputs["attention_mask"] = mask, mask
    with torch.no_grad():
        read = type(model).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **(EAGER if "experts" in str(model) else {}))
        tensors["logits"] = read.double().eval()(**inputs).logits.float()
    save_file({key: t.contiguous() for key, t in tensors.items()}, os.path.join(folder, "logits.safetensors"))
    for leftover in ("generation_config.json",):
        path = os.path.join(folder, leftover)
        if os.path.exists(path):
            os.remove(path)
    for file in os.listdir(folder):  # transformers leaves weights readable by the owner alone
        os.chmod(os.path.join(folder, file), 0o644)
    shutil.copy(os.path.join(folder, "config.json"), os.path.join(SEEDS, name))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(20263)
    shutil.rmtree(OUT, ignore_errors=True)
    for name, case in itertools.chain(cases().items(), later_cases()):
        record_text(name, *case)
    for name, model in image_cases():
        record_images(name, model)
    record_text("mistral", MistralForCausalLM(MistralConfig(head_dim=6, sliding_window=5, **SMALL)), torch.bfloat16, {})
    models = {**record_golden_language.models(), **dict(record_golden_language.later_models())}
    for name in ("gpt2", "llama", "qwen2", "qwen3", "bert", "mixtral", "qwen3_moe"):
        model = models[name]
        with tempfile.TemporaryDirectory() as folder:
            model.config.architectures = [type(model).__name__]
            model.config.save_pretrained(folder)
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
        with open(os.path.join(GOLDEN, "language", f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=1)
            file.write("\n")
    print(f"transformers {transformers.__version__}, timm {timm.__version__}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
