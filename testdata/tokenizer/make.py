"""Makes the tokenizers of this folder and what they do to texts, with Hugging
Face's tokenizers 0.23.3 and SentencePiece 0.2.3.

usage: make.py BOOKS.jsonl    (lines {"text": ..., "source": "book"}; CC0 novels)

Writes NAME.json (a tokenizer.json), NAME.model (a SentencePiece model) and
cases.json.gz: {name: [[text, ids with special tokens, ids without,
decoded without special tokens], ...]}, and for .model files
{name: [[text, ids, decoded], ...]} under "sentencepiece".
"""
import gzip, json, os, random, sys
from tokenizers import (Tokenizer, AddedToken, Regex, models, normalizers as N, pre_tokenizers as P,
                        decoders as D, processors as X, trainers as T)
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

here = os.path.dirname(os.path.abspath(__file__))
books = [d["text"] for d in map(json.loads, open(sys.argv[1], encoding="utf-8")) if d["source"] == "book"]
print(len(books), "books"); train = books[:-8]

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

LATIN = "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"

texts = [
    "", " ", "  ", "\n", "\t\n  x", "a", "Hello, world!", " Hello World", "Hello  World  ", "The quick brown fox's tail isn't 'Re 'S it'\u017f",
    "1 12 123 1234 12345 1,234.50 \u0663\u0664 \u00bd\u00b2\u2167", "caf\u00e9 cafe\u0301 \u1e9b\u0323 \u00c5\u212b \ufb01 \uff21\uff22\uff23 \u2460",
    "\u6771\u4eac\u30bf\u30ef\u30fc mixed\u4e2d\u6587text \ud55c\uad6d\uc5b4", "\U0001f642\U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301\u0323\u0302 \u0928\u092e\u0938\u094d\u0924\u0947",
    "if (a<b && c[0]=='x') { return \"y\"; } // \u2026\u2014\u00ab\u00bb", "line\r\nline\rline\u2028line\u0085line", "x\u200by\u00a0z\u3000w\ufeff",
    "<s>special</s> text <pad> <unk>", "a<s>b</s>c<mask> d  <mask>  e", "foo foobar barfoo foo.foo Foo FOO  foo  ", "<s><s> <s>\n</s>",
    "<0x41><0x0A> literal bytes", "\u2581meta\u2581 \u2581\u2581space \u2581", "UPPER lower \u0130\u0131\u00df\u03a3\u03c3\u03c2", "aaaaaaaaaaaaaaaa " * 4, "\u0001\u0007\u001f\u007f\u0000x",
    "...!!!???---", "don't   stop\n\n\n  now\t\ttabs", "the-final--countdown", "x" * 70 + " " + "ab" * 40, "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea \u0e44\u0e17\u0e22",
    "new york New York  newyork", "emoji \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \u2764\ufe0f", "tail space ", "\u00a0nbsp", "a\u0300\u0301\u0302b", "<ext0><ext1><ext10>",
]
rng = random.Random(7)
texts += [b[i:i + 240] for b in books[-8:] for i in [len(b) // 3]]
alphabet = "ab A1 .,'\n\t\u00e9\u4e2d\U0001f600\u2581<s>0x/ \u0301"
texts += ["".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 60))) for _ in range(40)]

cases, specials = {}, ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]

def finish(name, tok, texts=texts):
    j = json.loads(tok.to_str())
    open(os.path.join(here, name + ".json"), "w", encoding="utf-8").write(json.dumps(j, ensure_ascii=False, separators=(",", ":")))
    tok = Tokenizer.from_file(os.path.join(here, name + ".json"))
    rows = []
    for t in texts:
        try:
            a, b = tok.encode(t).ids, tok.encode(t, add_special_tokens=False).ids
        except Exception as e:
            rows.append([t, None, None, None]); continue
        try: d = tok.decode(b, skip_special_tokens=True)
        except BaseException: d = None   # BPEDecoder panics on nothing
        rows.append([t, a, b, d])
    cases[name] = rows

def byte_bpe(name, pre, size=420, norm=None, post=None, added=(), legacy=False, **model):
    tok = Tokenizer(models.BPE(**model))
    if norm: tok.normalizer = norm
    tok.pre_tokenizer, tok.decoder = pre, D.ByteLevel()
    tok.train_from_iterator(train, T.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    tok.add_tokens(list(added))
    if post: tok.post_processor = post(tok)
    finish(name, tok)

seq = lambda *a: P.Sequence(list(a))
level = P.ByteLevel(add_prefix_space=False, use_regex=False)
split = lambda r, b="isolated", i=False: P.Split(Regex(r), b, i)
template = lambda tok: X.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", tok.token_to_id("<s>")), ("</s>", tok.token_to_id("</s>"))])

byte_bpe("gpt2", P.ByteLevel(add_prefix_space=False))
byte_bpe("roberta", P.ByteLevel(add_prefix_space=True), post=lambda t: X.RobertaProcessing(("</s>", 2), ("<s>", 1)))
byte_bpe("llama3", seq(split(GPT4), level), post=lambda t: X.Sequence([X.ByteLevel(trim_offsets=False), template(t)]), ignore_merges=True)
byte_bpe("qwen2", seq(split(GPT4.replace("{1,3}", "")), level), norm=N.NFC())
byte_bpe("cl100k", seq(split(CL100K, "removed", True), level))
byte_bpe("kimi", seq(split(KIMI), level))
byte_bpe("starcoder", seq(P.Digits(True), P.ByteLevel(add_prefix_space=False)), post=lambda t: X.BertProcessing(("</s>", 2), ("<s>", 1)))
byte_bpe("falcon", seq(P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False), P.Digits(False), split("[0-9][0-9][0-9]")))
byte_bpe("deepseek", seq(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), P.Digits(True), level))
byte_bpe("deepseek-llm", seq(split(r"[\r\n]"), split(LATIN), split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), P.Digits(True), level))
byte_bpe("bloom", seq(split(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"), level))
byte_bpe("added", P.ByteLevel(add_prefix_space=False), norm=N.Lowercase(), added=[
    AddedToken("foo", single_word=True), AddedToken("foobar"), AddedToken("Foo", normalized=False, single_word=True),
    AddedToken("<mask2>", lstrip=True), AddedToken("new york", normalized=True), AddedToken("  ", normalized=False), AddedToken("x" * 9, rstrip=True, normalized=False),
    AddedToken("<ext1>", special=True), AddedToken("<ext10>", special=True), AddedToken(" d ", normalized=False, lstrip=True, rstrip=True)])

def merge_bpe(name, norm, pre, dec, size=560, unk="<unk>", fallback=True, fuse=True, added=(), post=None, **model):
    tok = Tokenizer(models.BPE(unk_token=unk, fuse_unk=fuse, byte_fallback=fallback, **model))
    if norm: tok.normalizer = norm
    if pre: tok.pre_tokenizer = pre
    tok.decoder = dec
    trainer = T.BpeTrainer(vocab_size=size, special_tokens=specials + (["<0x%02X>" % b for b in range(256)] if fallback else []), limit_alphabet=90, show_progress=False, max_token_length=16)
    tok.train_from_iterator(train[:30], trainer)
    j = json.loads(tok.to_str())
    j["added_tokens"] = [t for t in j["added_tokens"] if not t["content"].startswith("<0x")]
    tok = Tokenizer.from_str(json.dumps(j))
    tok.add_tokens(list(added))
    if post: tok.post_processor = post(tok)
    finish(name, tok)

spm_dec = D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
prepend = N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")])
merge_bpe("llama2", prepend, None, spm_dec, post=template)
merge_bpe("gemma", N.Replace(" ", "\u2581"), P.Split(" ", "merged_with_previous"), D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse()]))
for scheme in ["first", "always", "never"]:
    merge_bpe("metaspace-" + scheme, None, P.Metaspace(prepend_scheme=scheme, split=scheme != "never"), D.Metaspace(prepend_scheme=scheme), fallback=scheme == "first", fuse=scheme != "always")
merge_bpe("nounk", None, P.Whitespace(), D.BPEDecoder("</w>"), unk=None, fallback=False, end_of_word_suffix="</w>")
merge_bpe("prefix", N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()]), P.BertPreTokenizer(), D.Fuse(), fallback=False, fuse=False, continuing_subword_prefix="##")
merge_bpe("normed", N.Sequence([N.Strip(True, False), N.NFKC(), N.Replace(Regex(r"\s{2,}"), " "), N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None, spm_dec,
          added=[AddedToken("foo", normalized=True), AddedToken("<ext0>", normalized=False, special=True)])
merge_bpe("bertnorm", N.BertNormalizer(), seq(P.WhitespaceSplit(), P.Punctuation("merged_with_previous"), P.Digits(False)), D.Fuse(), fallback=False)
merge_bpe("nmt", N.Sequence([N.Nmt(), N.NFKD()]), seq(P.CharDelimiterSplit("-"), P.Split(" ", "merged_with_next"), P.Split(Regex("[aeiou]"), "contiguous"), P.Split("th", "removed")), D.Fuse(), fallback=False)
merge_bpe("words", None, seq(P.Whitespace(), P.Punctuation("removed")), None or D.Fuse(), fallback=False)

# SentencePiece: real models with a real charsmap
open("/tmp/spm_in.txt", "w", encoding="utf-8").write("\n".join(l for b in train for l in b.split("\n") if l.strip()))
sp_cases = {}
def sentencepiece(name, drop_map=False, **kw):
    spm.SentencePieceTrainer.train(input="/tmp/spm_in.txt", model_prefix="/tmp/" + name, num_threads=2, minloglevel=2, **kw)
    m = pb.ModelProto(); m.ParseFromString(open(f"/tmp/{name}.model", "rb").read())
    m.trainer_spec.ClearField("input"); m.trainer_spec.ClearField("model_prefix")
    open(os.path.join(here, name + ".model"), "wb").write(m.SerializeToString())
    sp = spm.SentencePieceProcessor(model_file=os.path.join(here, name + ".model"))
    sp_cases[name] = [[t, sp.encode(t), sp.decode(sp.encode(t))] for t in texts if "\0" not in t]
    return m
sentencepiece("sp-bpe", model_type="bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["foo", "<ext1>"], character_coverage=0.99, allow_whitespace_only_pieces=True)
sentencepiece("sp-bpe-unk", model_type="bpe", vocab_size=400, normalization_rule_name="nfkc", character_coverage=0.98)
m = sentencepiece("sp-unigram", model_type="unigram", vocab_size=500, normalization_rule_name="nmt_nfkc", user_defined_symbols=["foo"])
sentencepiece("sp-unigram-bytes", model_type="unigram", vocab_size=800, byte_fallback=True, normalization_rule_name="identity", character_coverage=0.98)

# Unigram in tokenizer.json, as Hugging Face's converters write T5 and XLM-R
def unigram(name, m, norm, pre, dec, fallback=False, post=None):
    vocab = [(p.piece, p.score) for p in m.pieces]
    tok = Tokenizer(models.Unigram(vocab, 0, byte_fallback=fallback))
    if norm: tok.normalizer = norm
    tok.pre_tokenizer, tok.decoder = pre, dec
    tok.add_special_tokens(["<unk>", "<s>", "</s>"])
    if post: tok.post_processor = post(tok)
    finish(name, tok)
unigram("unigram", m, N.Sequence([N.Precompiled(m.normalizer_spec.precompiled_charsmap), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), D.Metaspace(), post=template)
mb = pb.ModelProto(); mb.ParseFromString(open(os.path.join(here, "sp-unigram-bytes.model"), "rb").read())
unigram("unigram-bytes", mb, None, P.Metaspace(prepend_scheme="first", split=False), D.Sequence([D.ByteFallback(), D.Metaspace(prepend_scheme="first")]), fallback=True)

json.dump({"tokenizers": cases, "sentencepiece": sp_cases}, gzip.open(os.path.join(here, "cases.json.gz"), "wt", encoding="utf-8"), ensure_ascii=True, separators=(",", ":"))

# Kept compressed (package testdata/packed), but for the one that an example shows how to read.
for name in os.listdir(here):
    if name.endswith((".json", ".model")) and name != "llama3.json":
        raw = open(os.path.join(here, name), "rb").read()
        open(os.path.join(here, name + ".gz"), "wb").write(gzip.compress(raw, 9, mtime=0))
        os.remove(os.path.join(here, name))
