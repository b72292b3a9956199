#!/usr/bin/env python3
"""Records the tokens that other libraries produce: tests/golden/tokenizers.

    scripts/record_golden_tokenizers.py [NAME…]      needs the pip packages tokenizers, tiktoken and sentencepiece

Small vocabularies are trained on the project's own documents, so nothing is downloaded:
  bpe/        byte-level BPE with GPT-2's pattern: vocab.json and merges.txt; tiktoken agrees
  llama/      Llama 3's pattern, ignore_merges, special and other added tokens: tokenizer.json
  digits/     single digits, then GPT-2's pattern; NFC as Qwen has it
  unigram/, spm_bpe/   SentencePiece models with byte fallback
  wordpiece/, wordpiece_cased/   BERT's: vocab.txt; tokenizer.json that keeps capitals and accents
Each folder has cases.json: [[text, ids, decoded], …]; `specials` of it has cases with special tokens.
"""
import json
import pathlib
import sys

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE, WordPiece

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden" / "tokenizers"
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""

TEXTS = [
    "",
    " ",
    "Hello world",
    " The layers of a model are read like any others, so every check is the same.\n",
    "it's we'll they'RE I'M don't can't'd 'tis",
    "  two  spaces   three\n\n\nlines\r\n\r\ntabs\t\tand \t mixed \n x  ",
    "trailing spaces   ",
    "\n",
    " \n \n",
    "1234567890 3.14159 1,000,000 v2.0 x86_64 ２０２６ Ⅷ ½",
    "naïve café über straße Ελλάδα Привет мир 你好,世界 こんにちは 안녕하세요 ไทย हिन्दी עברית العربية",
    "decomposed: e\u0301 a\u030a o\u0308 \u1100\u1161\u11a8 \u212b \u2126",
    "emoji 😀👍🏽 👩‍👩‍👧‍👦 🇩🇪 ∑∞≠ €£¥",
    "odd spaces: a\u00a0b\u2003c\u3000d\u180ee\u200bf\u2028g\u0085h\ufeffi",
    "controls \x00\x01\x1b[0m\x7f",
    "int main() {\n    return a[i] += 1;  // comment\n}\n\tif (x != y) { z->w(); }",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "antidisestablishmentarianismantidisestablishmentarianismantidisestablishmentarianismantidisestablishment",
    "https://example.org/path?query=1&other=%20#fragment user@example.org",
    "!!!??...---===###***~~~",
    "MixedCASEWords andSnake_case_words UPPER",
    "<|endoftext|>",
]
SPECIALS = [
    "one<|endoftext|>two",
    "<|endoftext|><|endoftext|> x",
    "a <mask> b  <mask>  c",
    "no tokens <|endoftext|",
    "def f():\n        return 1\n",
]


def corpus():
    files = sorted((ROOT / "docs").glob("*.md")) + [ROOT / "LICENSE", ROOT / "README.md"]
    return [file.read_text() for file in files]


def write(folder, name, content):
    path = GOLDEN / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def write_cases(folder, cases, specials):
    lines = ",\n  ".join(json.dumps(case, separators=(",", ":")) for case in cases)
    more = ",\n  ".join(json.dumps(case, separators=(",", ":")) for case in specials)
    write(folder, "cases.json", f'{{"cases": [\n  {lines}],\n"specials": [\n  {more}]}}\n')


def train(pre_tokenizer, size, **model):
    tokenizer = Tokenizer(BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def record(folder, tokenizer, special_texts=SPECIALS):
    """Cases without special tokens, as encode_special_tokens gives them, and with them."""
    cases, specials = [], []
    tokenizer.encode_special_tokens = True
    for text in TEXTS + special_texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append([text, ids, tokenizer.decode(ids, skip_special_tokens=False)])
    tokenizer.encode_special_tokens = False
    for text in special_texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        specials.append([text, ids, tokenizer.decode(ids, skip_special_tokens=False)])
    write_cases(folder, cases, specials)
    return cases


def byte_decoder():
    own = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in own]
    return {**{chr(b): b for b in own}, **{chr(256 + i): b for i, b in enumerate(others)}}


def bpe():
    tokenizer = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 600)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    state = json.loads(tokenizer.to_str())
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in state["model"]["merges"]]
    vocab = {**state["model"]["vocab"], "<|endoftext|>": tokenizer.token_to_id("<|endoftext|>")}
    write("bpe", "vocab.json", json.dumps(vocab, ensure_ascii=False, separators=(",", ":")) + "\n")
    write("bpe", "merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")
    cases = record("bpe", tokenizer)
    # The same merges in tiktoken, whose ranks are ids.
    decoder = byte_decoder()
    ranks = {bytes(decoder[c] for c in token): id for token, id in state["model"]["vocab"].items()}
    other = tiktoken.Encoding("bpe", pat_str=GPT2, mergeable_ranks=ranks,
                              special_tokens={"<|endoftext|>": vocab["<|endoftext|>"]})
    for text, ids, _ in cases:
        if other.encode_ordinary(text) != ids:
            sys.exit(f"tiktoken and tokenizers differ: {text!r}")
    for text in SPECIALS:
        if other.encode(text, allowed_special="all") != tokenizer.encode(text, add_special_tokens=False).ids:
            sys.exit(f"tiktoken and tokenizers differ in special tokens: {text!r}")


def llama():
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = train(pre_tokenizers.Sequence([split, level]), 560, ignore_merges=True)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False),
                                  AddedToken("<mask>", special=True, lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("        ", normalized=False), AddedToken("int main", normalized=False)])
    write("llama", "tokenizer.json", tokenizer.to_str() + "\n")
    record("llama", tokenizer)


def digits():
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level]), 500)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False, rstrip=True)])
    write("digits", "tokenizer.json", tokenizer.to_str() + "\n")
    record("digits", tokenizer)


def sentence_piece(folder, kind, size):
    path = GOLDEN / folder
    path.mkdir(parents=True, exist_ok=True)
    lines = [line for text in corpus() for line in text.splitlines() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path / "tokenizer"), vocab_size=size, model_type=kind,
        byte_fallback=True, character_coverage=0.999, num_threads=1, minloglevel=2,
        normalization_rule_name="identity", user_defined_symbols=["<mask>"])
    (path / "tokenizer.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    texts = [text for text in TEXTS + SPECIALS if "\0" not in text]
    cases = [[text, model.encode(text), model.decode(model.encode(text))] for text in texts]
    write_cases(folder, cases, [])


def word_piece(folder, lowercase):
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        show_progress=False)
    tokenizer.train_from_iterator(corpus() + TEXTS[10:12], trainer)
    if lowercase:
        vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        write(folder, "vocab.txt", "".join(token + "\n" for token, _ in vocab))
    else:
        write(folder, "tokenizer.json", tokenizer.to_str() + "\n")
    record(folder, tokenizer, SPECIALS + ["a [MASK] b[SEP]", "[CLS]x[PAD]"])


def main(names):
    recorders = {"bpe": bpe, "llama": llama, "digits": digits, "unigram": lambda: sentence_piece("unigram", "unigram", 500),
                 "spm_bpe": lambda: sentence_piece("spm_bpe", "bpe", 500), "wordpiece": lambda: word_piece("wordpiece", True),
                 "wordpiece_cased": lambda: word_piece("wordpiece_cased", False)}
    for name in names or recorders:
        recorders[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
