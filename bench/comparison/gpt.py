"""Task 5 of docs/comparison.md: a small GPT on a text, a continuation, and a folder of Hugging Face."""
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

torch.manual_seed(0)
with open("text.txt", encoding="utf-8") as file:
    text = file.read()
vocabulary = {c: i for i, c in enumerate(["<|endoftext|>", *sorted(set(text))])}
characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<|endoftext|>"))
characters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
characters.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=characters, eos_token="<|endoftext|>", model_max_length=64)
ids = torch.tensor([vocabulary[c] for c in text])
train, held = ids[:len(ids) * 9 // 10], ids[len(ids) * 9 // 10:]

model = GPT2LMHeadModel(GPT2Config(vocab_size=len(vocabulary), n_layer=2, n_embd=64, n_head=4, n_positions=64,
                                   bos_token_id=0, eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01)
for step in range(1, 201):
    x = torch.stack([train[i:i + 64] for i in torch.randint(len(train) - 64, (8,))])
    loss = model(x, labels=x).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        with torch.no_grad():
            windows = held[:len(held) // 64 * 64].view(-1, 64)
            print(f"step {step}: loss {loss.item():.4f}, held out {model(windows, labels=windows).loss.item():.4f}")
prompt = tokenizer("def main(", return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens=50, do_sample=True, temperature=0.8, pad_token_id=0)[0]))
model.save_pretrained("base")
tokenizer.save_pretrained("base")
