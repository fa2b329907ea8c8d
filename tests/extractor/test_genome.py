"""Genes stay within their choices, are their sub-networks, and are encoded as published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.extractor.genome import Genome, cross, fitting
from pocketune.extractor.spaces import config_of, genes_of, genome_of
from pocketune.supernet import Space

from .small import genome, space

SEEDS = st.integers(0, 2**32 - 1)
PUBLISHED = Genome(sizes=(224,))


def test_the_published_space_has_127_entries() -> None:
    assert PUBLISHED.blocks == 21
    assert PUBLISHED.encode(PUBLISHED.largest).shape == (1, 127)


def test_a_block_that_runs_has_one_kernel_and_one_expansion_in_the_encoding() -> None:
    codes = PUBLISHED.encode(np.concatenate([PUBLISHED.smallest, PUBLISHED.largest]))
    assert codes.sum(axis=1).tolist() == [1 + 2 * 11, 1 + 2 * 21]


def test_a_dense_first_block_has_no_kernel_in_the_encoding() -> None:
    dense = Genome(sizes=(224,), dense=True)
    assert dense.encode(dense.largest).sum() == 1 + 2 * 21 - 1


@given(SEEDS)
def test_equal_sub_networks_have_equal_encodings_and_no_others(seed: int) -> None:
    small = genome(first="reduced", sizes=(32, 48))
    rng = np.random.default_rng(seed)
    one = small.sample(rng, 20)
    other = small.mutate(one, rng, 0.1)
    codes = (small.encode(one) == small.encode(other)).all(axis=1)
    same = (small.canonical(one) == small.canonical(other)).all(axis=1)
    assert codes.tolist() == same.tolist()


@given(SEEDS)
def test_genes_and_configs_are_the_same_sub_networks(seed: int) -> None:
    where = space(first="reduced", sizes=(32, 48), module_groups=(2, 4), module_kernels=(3, 5))
    small = genome_of(where)
    genes = small.sample(np.random.default_rng(seed), 4)
    configs = [config_of(where, small, row) for row in genes]
    for config in configs:
        where.check(config)
        assert where.canonical(config) == config
    assert (small.canonical(genes_of(small, configs)) == small.canonical(genes)).all()


def test_the_ends_are_those_of_the_space() -> None:
    where = space(module_groups=(2, 4), module_kernels=(3, 5))
    small = genome_of(where)
    assert config_of(where, small, small.largest[0]) == where.canonical(where.largest)
    least = config_of(where, small, small.smallest[0])
    assert (least.depths, least.kernels) == (where.smallest.depths, where.smallest.kernels)
    assert set(least.module_groups[:1]) == {2}, "modules are not searched for: the largest ones"


@given(SEEDS)
def test_mutants_and_crosses_have_choices_of_their_parents_or_new_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = PUBLISHED.sample(rng, 10), PUBLISHED.sample(rng, 10)
    crossed = cross(one, other, rng)
    assert ((crossed == one) | (crossed == other)).all()
    mutants = PUBLISHED.mutate(one, rng, 0.1)
    assert ((mutants >= 0) & (mutants < PUBLISHED.choices)).all()
    assert (PUBLISHED.mutate(one, rng, 0.0) == one).all()


def test_a_block_redraws_its_kernel_and_its_expansion_together() -> None:
    rng = np.random.default_rng(0)
    parent = np.repeat(PUBLISHED.smallest, 4000, axis=0)
    _, _, kernels, expansions = PUBLISHED.parts(PUBLISHED.mutate(parent, rng, 0.1))
    assert np.mean(kernels > 0) == pytest.approx(0.1 * 2 / 3, abs=0.01)
    both = np.mean((kernels > 0) & (expansions > 0))
    assert both == pytest.approx(0.1 * 4 / 9, abs=0.01), "not 0.01 * 4 / 9"


def test_where_only_the_smallest_fits_it_is_found() -> None:
    found = fitting(PUBLISHED, np.random.default_rng(0), 5, lambda genes: ~genes.any(axis=1))
    assert (found == PUBLISHED.smallest).all()


def test_what_fits_is_uniform_among_what_fits() -> None:
    found = fitting(PUBLISHED, np.random.default_rng(0), 2000, lambda genes: genes[:, 1] == 2)
    assert (found[:, 1] == 2).all()
    assert np.bincount(found[:, 2]) == pytest.approx([667] * 3, abs=90)


def test_a_size_that_the_space_does_not_have() -> None:
    with pytest.raises(PocketuneError, match="no images of 64 px: choose a size of 32, 48"):
        genome_of(Space(sizes=(32, 48)), 64)
    assert genome_of(Space(sizes=(32, 48)), 48).sizes == (48,)
