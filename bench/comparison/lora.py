"""Task 19 of docs/comparison.md: a folder of Hugging Face, fine-tuned with LoRA on prompts and answers."""
import json

from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("base")
tokenizer.pad_token = tokenizer.eos_token


def encode(line):
    record = json.loads(line)
    prompt, answer = tokenizer(record["prompt"]).input_ids, tokenizer(record["completion"]).input_ids + [tokenizer.eos_token_id]
    return {"input_ids": prompt + answer, "attention_mask": [1] * len(prompt + answer), "labels": [-100] * len(prompt) + answer}


with open("answers.jsonl", encoding="utf-8") as file:
    samples = [encode(line) for line in file]
model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig(
    r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"], task_type="CAUSAL_LM"))
arguments = TrainingArguments("runs/lora", per_device_train_batch_size=16, num_train_epochs=3, learning_rate=2e-4, lr_scheduler_type="cosine",
                              eval_strategy="epoch", logging_steps=1, use_cpu=True, report_to="none")
trainer = Trainer(model, arguments, train_dataset=samples[:58], eval_dataset=samples[58:], data_collator=DataCollatorForSeq2Seq(tokenizer))
trainer.train()
model.save_pretrained("adapters")
model.merge_and_unload().save_pretrained("merged")
tokenizer.save_pretrained("merged")
