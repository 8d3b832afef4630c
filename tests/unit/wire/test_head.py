import threading

import pytest

from broker.wire.errors import Damaged, Fenced, LostRace, NewerGeneration, UnknownWrite
from broker.wire.head import Head, Link, decode_head, encode_head, fence, head_key, read_head, swap_head
from tests.unit.wire.faulty import Lossy

JOB = "jobs/x"


def commit(store, generation, nonce, etag=None):
    """Swap in the next commit as a committer would, without any files."""
    head, read_etag = read_head(store, JOB)
    following = Head(generation, head.seq + 1, nonce, f"manifests/{nonce}", "0" * 64, head.link)
    return swap_head(store, JOB, etag or read_etag, following)


def test_survives_the_store():
    head = Head(3, 12, "n", "manifests/m", "ab", Link("manifests/l", "cd"), "bk-a-0")
    assert decode_head(encode_head(head)) == head
    with pytest.raises(Damaged):
        decode_head(b'{"generation": 1}')


def test_the_first_fence_creates_head_and_repeats_change_nothing(store):
    assert read_head(store, JOB) is None
    assert fence(store, JOB, 1, "a") == Head(1, 0, "a")
    assert fence(store, JOB, 1, "b") == Head(1, 0, "a")


def test_a_fence_keeps_the_last_commit_and_refuses_the_old_owner(store):
    fence(store, JOB, 1, "a")
    committed = commit(store, 1, "c1")
    _, stale = read_head(store, JOB)
    fenced = fence(store, JOB, 2, "b")
    assert (fenced.generation, fenced.seq, fenced.link) == (2, 1, committed.link)
    with pytest.raises(Fenced):
        commit(store, 1, "c2", stale)
    with pytest.raises(NewerGeneration):
        fence(store, JOB, 1, "d")
    assert read_head(store, JOB)[0] == fenced


def test_a_generation_belongs_to_one_holder(store):
    """Two brokers on copies of one database count on alike: whoever comes second must see that it was not he."""
    mine = fence(store, JOB, 1, "a", "bk-mine-0")
    assert fence(store, JOB, 1, "b", "bk-mine-0") == mine
    with pytest.raises(NewerGeneration, match="held by bk-mine-0, not by bk-other-0"):
        fence(store, JOB, 1, "c", "bk-other-0")
    assert read_head(store, JOB)[0] == mine
    assert fence(store, JOB, 2, "d", "bk-other-0").holder == "bk-other-0"


def test_a_head_that_must_exist_is_not_made_anew(store):
    """The job has committed; starting from nothing would lose its work without a word."""
    with pytest.raises(Damaged, match="it is gone, and this job had one"):
        fence(store, JOB, 2, "a", "bk-mine-0", must_exist=True)
    assert read_head(store, JOB) is None


def test_a_head_without_a_holder_is_anybodys(store):
    """As an earlier release wrote it."""
    fence(store, JOB, 1, "a")
    assert fence(store, JOB, 1, "b", "bk-mine-0").holder == ""


def test_two_holders_that_race_for_a_generation_are_one_and_a_refusal(store):
    fence(store, JOB, 1, "a", "bk-old-0")
    lossy = Lossy(store, ["undone"])
    lossy.between = lambda: fence(store, JOB, 2, "b", "bk-other-0")
    with pytest.raises(NewerGeneration):
        fence(lossy, JOB, 2, "c", "bk-mine-0")
    assert read_head(store, JOB)[0].holder == "bk-other-0"


def test_equal_content_is_no_equal_version(store):
    """ABA: fence, nothing, fence again would give the same bytes without a nonce."""
    fence(store, JOB, 1, "a")
    _, first = read_head(store, JOB)
    swap_head(store, JOB, first, Head(1, 0, "b"))
    with pytest.raises(LostRace):
        swap_head(store, JOB, first, Head(1, 0, "c"))


@pytest.mark.parametrize("script", [["done"], ["undone"], ["undone", "undone", "done"]])
def test_a_lost_reply_is_settled_by_the_nonce(store, script):
    lossy = Lossy(store, script)
    assert fence(lossy, JOB, 1, "a") == Head(1, 0, "a")
    lossy.script = list(script)
    assert commit(lossy, 1, "c1").seq == 1
    assert read_head(store, JOB)[0].nonce == "c1"
    assert lossy.script == []


def test_a_lost_reply_is_no_licence_to_overwrite(store):
    fence(store, JOB, 1, "a")
    lossy = Lossy(store, ["undone"])
    lossy.between = lambda: fence(store, JOB, 2, "b")
    with pytest.raises(Fenced):
        commit(lossy, 1, "c1")
    assert read_head(store, JOB)[0] == Head(2, 0, "b")


def test_a_commit_that_a_fence_overtook_is_in_the_line_though_its_owner_is_told_off(store):
    fence(store, JOB, 1, "a")
    lossy = Lossy(store, ["done"])
    lossy.between = lambda: fence(store, JOB, 2, "b")
    with pytest.raises(Fenced):
        commit(lossy, 1, "c1")
    head = read_head(store, JOB)[0]
    assert (head.generation, head.seq, head.manifest) == (2, 1, "manifests/c1")


def test_a_store_that_never_answers_leaves_doubt(store):
    fence(store, JOB, 1, "a")
    with pytest.raises(UnknownWrite):
        commit(Lossy(store, ["undone"] * 10), 1, "c1")


def test_a_fence_wins_against_an_owner_that_keeps_committing(store):
    fence(store, JOB, 1, "a")
    stop = threading.Event()
    outcome = []

    def train():
        number = 0
        while not stop.is_set():
            number += 1
            try:
                commit(store, 1, f"c{number}")
            except Fenced as error:
                outcome.append(error)
                return

    owner = threading.Thread(target=train)
    owner.start()
    try:
        assert fence(store, JOB, 2, "b").generation == 2
    finally:
        owner.join(timeout=5)
        stop.set()
    assert len(outcome) == 1


def test_of_simultaneous_swaps_exactly_one_goes_through(any_store, prefix):
    fence(any_store, prefix, 1, "a")
    head, etag = read_head(any_store, prefix)
    start = threading.Barrier(4)
    won, lost = [], []

    def run(number):
        start.wait()
        try:
            won.append(swap_head(any_store, prefix, etag, Head(1, 1, f"n{number}", "m", "s", head.link)))
        except LostRace as error:
            lost.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 3
    assert read_head(any_store, prefix)[0] == won[0]


def test_an_unreadable_head_is_an_error_and_not_an_absent_one(store):
    store.put(head_key(JOB), b"garbage")
    with pytest.raises(Damaged):
        fence(store, JOB, 1, "a")
