"""Nothing that can leave is left, in few runs."""

import numpy as np

from icl_interp.circuits.pruning import fewest, pruned


def test_pruning_leaves_nothing_that_can_leave():
    random = np.random.default_rng(0)
    for _ in range(50):
        sizes = random.random(8)

        def enough(kept, sizes=sizes):
            return sizes[list(kept)].sum() >= 1.5

        found = pruned(range(8), random.permutation(8).tolist(), enough)
        assert enough(found.left)
        assert not any(enough(set(found.left) - {one}) for one in found.left)
        assert found.n_untried == 0
        first = fewest(range(8), enough)
        assert enough(first)
        assert not enough(first[:-1])


def test_what_was_needed_is_tried_again_once_something_left():
    """Items that cancel: one may leave only after another one."""
    random = np.random.default_rng(1)
    for _ in range(50):
        sizes = random.normal(size=8)

        def enough(kept, sizes=sizes):
            return abs(sizes.sum() - sizes[list(kept)].sum()) <= 0.5

        found = pruned(range(8), range(8), enough)
        assert enough(found.left)
        assert not any(enough(set(found.left) - {one}) for one in found.left)


def test_many_leave_in_few_runs():
    needed = {3, 500, 998, 999}
    asked = []

    def enough(kept):
        asked.append(len(kept))
        return needed <= set(kept)

    found = pruned(range(1000), range(1000), enough)
    assert set(found.left) == needed
    assert len(asked) < 80  # one by one it takes a thousand
    # Where runs are short what was not tried is counted.
    asked.clear()
    short = pruned(range(1000), range(1000), enough, n_runs=12)
    assert len(asked) == 12
    assert needed <= set(short.left)
    assert 0 < short.n_untried <= len(short.left) < 1000
