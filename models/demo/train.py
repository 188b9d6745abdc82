"""Train the demo model from scratch on two CPU cores: a small Llama that can find needles, and can lose them.

    python models/demo/train.py --out models/demo/hf

It learns on documents and questions of the needle benchmark, from other seeds than any evaluation's. Each row of a
batch is one document followed by many questions about it; a mask lets a question see the document and itself only,
at the positions it would have alone. So one prefill of the document teaches many answers, and what is trained is
exactly what is evaluated. The loss counts answers only.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizer import BOS, EOS, make_tokenizer
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lbx.benchmarks.needle import (
    KINDS,
    LANGUAGES,
    Language,
    Needle,
    NeedleSettings,
    make_document,
    make_needles,
    make_sample,
    pick,
    pick_several,
)

IGNORED = -100
CONTEXT_WINDOW = 4096
HEAD = 32
ROPE_THETA = 10_000.0
EMBEDDING_STD = 0.1
COPY_SCALE, NOTE_SCALE, MATCH_SCALE = 1.0, 0.3, 4.0


@dataclass(frozen=True)
class Stage:
    """One part of the curriculum.

    Attributes:
        steps: of the optimizer.
        tokens: document lengths in tokens are drawn from this range.
        needles: how many needles a document has, drawn from these.
        multi: questions with several keys a document.
    """

    steps: int
    tokens: tuple[int, int]
    needles: tuple[int, ...]
    multi: int


STAGES = (
    Stage(60, (40, 80), (1, 2, 4, 8), 0),
    Stage(120, (40, 200), (1, 2, 4, 8), 2),
    Stage(620, (40, 480), (1, 2, 4, 8), 2),
)
TOKENS_PER_BATCH = 3072
PEAK_RATE = 2e-3
WARMUP = 50


@dataclass(frozen=True)
class Row:
    """A document and its questions as tokens, with what attends to what.

    Attributes:
        ids, labels, positions: one entry a token; a label is the token itself where it is part of an answer.
        segment: 0 for the document, then 1, 2 ... for the questions.
    """

    ids: list[int]
    labels: list[int]
    positions: list[int]
    segment: list[int]


class Batches:
    """Rows of one length after another, from a seed."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._rng = random.Random(f"lbx-demo-train/{seed}")  # noqa: S311 - no secret
        self._eos = tokenizer.token_to_id(EOS)

    def needles(self, stage: Stage) -> list[Row]:
        low, high = stage.tokens
        tokens = low + int(self._rng.random() * (high - low))
        count = pick(self._rng, stage.needles)
        rows: list[Row] = []
        used = 0
        while used < TOKENS_PER_BATCH:
            rows.append(self._row(pick(self._rng, ("en", "zh")), tokens, count, stage.multi))
            used += len(rows[-1].ids)
        return rows

    def _row(self, name: str, tokens: int, count: int, multi: int) -> Row:
        rng, language = self._rng, LANGUAGES[name]
        length = int(tokens / (1.17 if name == "en" else 0.46))
        count = max(1, min(count, length // language.count(language.needle(language.keys[0], "0000")) - 1))
        needles = make_needles(rng, rng, language, count, 4)
        document = make_document(rng, rng, language, needles, length=length, depth=rng.random())
        ids = self._tokenizer.encode(language.before + document).ids
        row = Row(ids, [IGNORED] * len(ids), list(range(len(ids))), [0] * len(ids))
        asked = [[n] for n in needles[:8]]
        if count > 1:
            asked += [pick_several(rng, needles, 2) for _ in range(multi)]
        for number, pairs in enumerate(asked, start=1):
            self._ask(row, language, pairs, number, start=len(ids))
        return row

    def _ask(self, row: Row, language: Language, pairs: Sequence[tuple[str, str]], number: int, start: int) -> None:
        question = self._encode("\n\n" + language.question([key for key, _ in pairs]))
        (_, value), *others = pairs
        said = f" {value}{language.stop}" + "".join(language.joiner + language.needle(k, v) for k, v in others)
        answer = [*self._encode(said), self._eos]
        row.ids.extend(question + answer)
        row.labels.extend([IGNORED] * len(question) + answer)
        row.positions.extend(range(start, start + len(question) + len(answer)))
        row.segment.extend([number] * (len(question) + len(answer)))

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def collate(rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ids, labels, positions of shape (rows, tokens), and the mask (rows, 1, tokens, tokens), True where seen."""
    width = max(len(row.ids) for row in rows)

    def pad(lists: list[list[int]], filler: int) -> Tensor:
        return torch.tensor([[*values, *[filler] * (width - len(values))] for values in lists])

    segment = pad([row.segment for row in rows], -1)
    ask, key = segment[:, :, None], segment[:, None, :]
    seen = ((ask == key) | ((key == 0) & (ask >= 0))) & torch.ones(width, width, dtype=torch.bool).tril()
    return (
        pad([row.ids for row in rows], 0),
        pad([row.labels for row in rows], IGNORED),
        pad([row.positions for row in rows], 0),
        seen[:, None],
    )


def answer_loss(model: LlamaForCausalLM, rows: Sequence[Row]) -> tuple[Tensor, float]:
    """Mean cross-entropy of the answers' tokens, and the share of them that greedy decoding would get right."""
    ids, labels, positions, seen = collate(rows)
    hidden = model.model(input_ids=ids, position_ids=positions, attention_mask=seen).last_hidden_state
    # The token at i predicts the one at i + 1; a question's first token is never a label, so rows do not mix.
    wanted = labels[:, 1:] != IGNORED
    logits = model.lm_head(hidden[:, :-1][wanted])
    target = labels[:, 1:][wanted]
    return functional.cross_entropy(logits, target), (logits.argmax(-1) == target).float().mean().item()


def make_model(vocab_size: int) -> LlamaForCausalLM:
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=HEAD,
            max_position_embeddings=CONTEXT_WINDOW,
            rms_norm_eps=1e-5,
            rope_theta=ROPE_THETA,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
            attn_implementation="sdpa",
        )
    )
    with torch.no_grad():
        initialise(model)
    return model


def initialise(model: LlamaForCausalLM) -> None:
    """Sketch an induction circuit in random directions: from plain noise two cores would need hours to find it.

    Two heads of the first layer look one and two tokens back and note what stands there; the second layer's attend
    to what followed the last two tokens when they stood there before ("maple is" -> " 48"), and copy it. As it is,
    the sketch answers one token in five; training makes it exact, and teaches it length, order and when to stop.
    """
    table = model.model.embed_tokens.weight
    width = table.shape[1]
    basis = torch.nn.init.orthogonal_(torch.empty(width, width))
    # A direction that all tokens share lets a head attend by position alone.
    shared, code, one_back, two_back = basis[0], basis[1 : 1 + HEAD], basis[33 : 33 + HEAD], basis[65 : 65 + HEAD]
    torch.nn.init.normal_(table, std=EMBEDDING_STD)
    table += EMBEDDING_STD * width**0.5 * shared
    first, second = (model.model.layers[i].self_attn for i in (0, 1))
    for layer in model.model.layers:
        value = torch.nn.init.orthogonal_(torch.empty(width, width))
        layer.self_attn.v_proj.weight.copy_(value)
        layer.self_attn.o_proj.weight.copy_(COPY_SCALE * value.T)
    for head, (back, place) in enumerate(((1, one_back), (2, two_back))):
        rows = slice(head * HEAD, (head + 1) * HEAD)
        _attend_back(first, rows, back, shared)
        first.v_proj.weight[rows] = code
        first.o_proj.weight[:, rows] = NOTE_SCALE * place.T
    first.o_proj.weight[:, 2 * HEAD :] *= 0.1
    model.model.layers[2].self_attn.o_proj.weight.mul_(0.1)
    for start in range(0, width, HEAD):
        _attend_alike(second, start, code, one_back, two_back)


def _attend_back(attention: torch.nn.Module, rows: slice, back: int, shared: Tensor) -> None:
    """Make a head's scores highest ``back`` tokens before: sum over frequencies w of cos(w (distance - back))."""
    half, pairs = HEAD // 2, 4
    frequency = ROPE_THETA ** (-torch.arange(pairs) / half)
    query, key = torch.zeros(HEAD), torch.zeros(HEAD)
    query[:pairs], query[half : half + pairs] = torch.cos(frequency * back), -torch.sin(frequency * back)
    key[:pairs] = 1
    attention.q_proj.weight[rows] = 0.8 * torch.outer(query, shared)
    attention.k_proj.weight[rows] = 0.8 * torch.outer(key, shared)


def _attend_alike(attention: torch.nn.Module, start: int, code: Tensor, one_back: Tensor, two_back: Tensor) -> None:
    """Make a head's scores high where (two back, one back) are what (one back, itself) are at the query."""
    half, slow = HEAD // 2, HEAD // 4  # rope turns the last pairs slowly: content survives distance there
    blur = torch.nn.init.orthogonal_(torch.empty(HEAD, HEAD))
    attention.q_proj.weight[start : start + HEAD] = 0.02 * torch.randn(HEAD, code.shape[1])
    attention.k_proj.weight[start : start + HEAD] = 0.02 * torch.randn(HEAD, code.shape[1])
    for place, asked, noted in ((start + slow, one_back, two_back), (start + half + slow, code, one_back)):
        rows = slice(place, place + slow)
        attention.q_proj.weight[rows] = MATCH_SCALE * blur[:slow] @ asked
        attention.k_proj.weight[rows] = MATCH_SCALE * blur[:slow] @ noted


def plan(batches: Batches) -> Iterator[tuple[str, list[Row]]]:
    """The whole curriculum, batch by batch."""
    for number, stage in enumerate(STAGES, start=1):
        for _ in range(stage.steps):
            yield f"stage {number}", batches.needles(stage)


def train(model: LlamaForCausalLM, batches: Batches) -> None:
    total = sum(stage.steps for stage in STAGES)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
        lr=PEAK_RATE,
        betas=(0.9, 0.95),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, max(0.02, 1 - max(0, step - 0.5 * total) / (0.5 * total)))
    )
    began, losses, rights, tokens = time.monotonic(), [], [], 0
    for step, (name, rows) in enumerate(plan(batches), start=1):
        loss, right = answer_loss(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        rights.append(right)
        tokens += sum(len(row.ids) for row in rows)
        if step % 20 == 0:
            seconds = time.monotonic() - began
            print(
                f"{name} step {step}/{total} loss {sum(losses) / len(losses):.3f} right {sum(rights) / len(rights):.3f}"
                f" tokens {tokens / 1e6:.2f}M {seconds:.0f} s",
                flush=True,
            )
            losses, rights = [], []


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    """A Hugging Face folder; the weights are float16, so every format made from them holds the same numbers."""
    model.half().save_pretrained(out)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=CONTEXT_WINDOW,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(out)


def evaluate(folder: Path, settings: NeedleSettings) -> Iterator[tuple[str, list[float]]]:
    """Task and mean recall at each length, greedy, float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    benchmark = Needle()
    for kind in KINDS:
        for language in settings.languages:
            means = []
            for length in settings.lengths:
                scores = []
                for index in range(settings.samples_per_cell):
                    for depth in settings.depths:
                        sample = make_sample(settings, kind, language, length=length, depth=depth, index=index)
                        text = LANGUAGES[language].before + sample.context + "\n\n" + sample.question
                        ids = tokenizer(text, return_tensors="pt")["input_ids"]
                        said = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=1)
                        output = tokenizer.decode(said[0, ids.shape[1] :], skip_special_tokens=True)
                        scores.append(benchmark.score(sample, output)[0].score)
                means.append(sum(scores) / len(scores))
            yield f"{kind}_{language}", means


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "hf")
    parser.add_argument("--seed", type=int, default=0, help="of weights and training documents")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer.get_vocab_size())
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {tokenizer.get_vocab_size()} tokens", flush=True)
    train(model, Batches(tokenizer, args.seed))
    save(model, tokenizer, args.out)
    settings = NeedleSettings()
    print("recall " + " ".join(f"{length:>6}" for length in settings.lengths))
    for task, means in evaluate(args.out, settings):
        print(f"{task} " + " ".join(f"{mean:6.2f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
