"""Files of torch.save that would grow are refused before they do.

They are archives that unpack to much more, and pickles of many objects.
"""

import io
import pickle
import resource
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from collections import OrderedDict

import pytest
import tiny_runs
import torch
from helpers import must_fail
from tiny_runs import refuse

from icl_interp.checkpoints.formats import files, pickles
from icl_interp.errors import InputError

pytestmark = pytest.mark.usefixtures("as_users_run_it")

MAGIC = (
    pickle.dumps(119547037146038801333356, 2)
    + pickle.dumps(1001, 2)
    + pickle.dumps({"little_endian": True}, 2)
)
COMPRESSED = (
    "is a compressed archive of [0-9,]+ bytes that unpacks to [0-9,]+, but torch.save compresses "
    "nothing"
)
DAMAGED = r"is not a whole file of torch.save \(it is cut off or damaged\)"
MANY = "holds a pickle of more than [0-9,]+ objects"
DEEP = "holds a pickle that nests deeper than the 100 levels"


def members(data=None):
    """The members of an archive of one tensor of three numbers."""
    stream = io.BytesIO()
    torch.save({"a": torch.ones(3)}, stream)
    with zipfile.ZipFile(stream) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    return {**found, "archive/data.pkl": data} if data else found


def archived(path, content, packed=()):
    """A file of these members; those that are named are compressed."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            kind = zipfile.ZIP_DEFLATED if name in packed else zipfile.ZIP_STORED
            archive.writestr(name, data, kind)


def test_archives_as_torch_writes_them_are_read(tmp_path):
    """In both formats, also when another program has put the archive together."""
    archived(tmp_path / "new.pt", members())
    torch.save({"a": torch.ones(3)}, tmp_path / "own.pt")
    torch.save({"a": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("new.pt", "own.pt", "old.pt"):
        assert files.read(tmp_path / name).tensors["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "name", ["archive/data.pkl", "archive/version", "archive/byteorder", "archive/data/0"]
)
def test_a_compressed_member_is_refused_before_it_is_unpacked(tmp_path, name):
    content = members()
    content[name] += b"\0" * 10**7
    archived(tmp_path / "x.pt", content, packed=[name])
    assert (tmp_path / "x.pt").stat().st_size < 10**5
    refuse(tmp_path / "x.pt", COMPRESSED, files.read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickles, "check", lambda file, kind: None)
        must_fail(refuse, tmp_path / "x.pt", COMPRESSED, files.read)


def test_members_that_lie_over_each_other_are_refused(tmp_path):
    """Two entries of the directory with the same bytes have more bytes together than the file."""
    content = {**members(), "archive/data/0": b"\0" * 10**5}
    archived(tmp_path / "x.pt", content)
    data = (tmp_path / "x.pt").read_bytes()
    start = struct.unpack("<L", data[-6:-2])[0]
    directory, end = data[start:-22], data[-22:]
    place = directory.index(b"archive/data/0") - 46
    entry = directory[place : place + 46 + len("archive/data/0")]
    again = b"".join(entry.replace(b"data/0", b"data/%d" % i) for i in range(1, 9))
    counts = struct.pack("<HHLL", len(content) + 8, len(content) + 8, len(directory + again), start)
    (tmp_path / "x.pt").write_bytes(data[:start] + directory + again + end[:8] + counts + end[20:])
    assert len(zipfile.ZipFile(tmp_path / "x.pt").namelist()) == len(content) + 8
    refuse(tmp_path / "x.pt", COMPRESSED, files.read)


@pytest.mark.parametrize("twice", ["archive/DATA.pkl", "Archive/data.pkl", "archive/more/data.pkl"])
def test_a_second_pickle_in_an_archive_is_refused(tmp_path, twice):
    archived(tmp_path / "x.pt", {**members(), twice: b"\x80\x02N."})
    refuse(tmp_path / "x.pt", DAMAGED, files.read)


@pytest.mark.parametrize(
    "writes", [archived, lambda path, _: torch.save({"a": torch.ones(3)}, path)]
)
def test_an_archive_has_one_end_and_one_start(tmp_path, writes):
    writes(tmp_path / "x.pt", members())
    data = (tmp_path / "x.pt").read_bytes()
    for other in (
        data + data[-22:],
        data + b"\0",
        b"PK\0\0" + data,
        data[:-98] + b"\0" * 8 + data[-98:],
    ):
        (tmp_path / "x.pt").write_bytes(other)
        refuse(tmp_path / "x.pt", DAMAGED, files.read)


def test_a_long_directory_is_not_read(tmp_path, monkeypatch):
    archived(tmp_path / "x.pt", members())
    monkeypatch.setattr(pickles, "LARGEST_DIRECTORY", 300)
    refuse(
        tmp_path / "x.pt", "has a directory of [0-9]+ bytes, but at most 300 are read", files.read
    )
    monkeypatch.setattr(pickles, "LARGEST_DIRECTORY", 3000)
    monkeypatch.setattr(pickles, "LARGEST_PICKLE", 50)
    for old in (False, True):
        torch.save({"a": torch.ones(3)}, tmp_path / "x.pt", _use_new_zipfile_serialization=not old)
        refuse(
            tmp_path / "x.pt",
            "holds a pickle of [0-9]+ bytes beside its tensors|is cut off",
            files.read,
        )


# ---- pickles -------------------------------------------------------------------------------------


def text(word):
    return b"X" + struct.pack("<I", len(word)) + word.encode()


ORDERED, ENCODE = b"ccollections\nOrderedDict\n", b"c_codecs\nencode\n"
LONG = text("x" * 10**6) + b"q\x01"  # kept under number 1
PICKLES = {
    "lists": (b"]" + b"]a" * 10**6, MANY),
    "numbers": (b"](" + b"K\x01" * 10**6 + b"e", MANY),
    "tuples in a key": (b"})" + b"\x85" * 300_000 + b"K\x01s", DEEP),
    "pairs in a key": (b"})" + b")\x86" * 200 + b"K\x01s", DEEP),
    "lists in lists": (b"]" * 200 + b"a" * 199, DEEP),
    "lists by number": (b"]q\x00" + b"]h\x00aq\x00" * 200, DEEP),
    "bytes of a number": (
        b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R",
        "this one asks for builtins.bytearray",
    ),
    "bytes as Python 2 calls them": (
        b"c__builtin__\nbytearray\nK\x09\x85R",
        "this one asks for __builtin__.bytearray",
    ),
    "copies of a text": (
        b"]" + LONG + b"0" + (ENCODE + b"h\x01" + text("latin1") + b"\x86Ra") * 100,
        MANY,
    ),
    "states of mappings": (
        b"]" + LONG + b"0" + (ORDERED + b")R(" + text("a") + b"h\x01dba") * 100,
        MANY,
    ),
}


def new_format(path, data):
    archived(path, members(b"\x80\x02" + data + b"."))


def old_format(path, data):
    path.write_bytes(MAGIC + b"\x80\x02" + data + b"." + pickle.dumps([], 2))


@pytest.mark.parametrize("write", [new_format, old_format])
@pytest.mark.parametrize("name", [name for name, (_, words) in PICKLES.items() if words])
def test_a_pickle_that_makes_too_much_is_refused_at_once(tmp_path, monkeypatch, name, write):
    data, words = PICKLES[name]
    write(tmp_path / "x.pt", data)
    monkeypatch.setattr(
        pickles, "MOST", 10**5
    )  # a tenth of it: the run-time check of annotations is slow
    refuse(tmp_path / "x.pt", words, files.read)


@pytest.mark.parametrize("write", [new_format, old_format])
def test_a_mapping_is_not_copied_without_end(tmp_path, monkeypatch, write):
    monkeypatch.setattr(pickles, "MOST", 10**5)
    pairs = (
        b"]q\x01(" + b"".join(b"M" + struct.pack("<H", i) + b"N\x86" for i in range(5_000)) + b"e"
    )
    write(tmp_path / "x.pt", b"]" + pairs + b"0" + (ORDERED + b"h\x01\x85Ra") * 20)
    refuse(tmp_path / "x.pt", MANY, files.read)


@pytest.mark.parametrize(
    "data",
    [b"a", b"0", b"e", b"h\x05", b"q\x01", b"(q\x01", b"t", b"R", b"\xff", b"X\xff\xff\xff\x7fx"],
)
def test_a_pickle_that_is_none_is_damaged(tmp_path, data):
    for write in (new_format, old_format):
        write(tmp_path / "x.pt", data)
        refuse(tmp_path / "x.pt", DAMAGED, files.read)


def test_what_is_counted_is_what_is_there():
    """Depth and number of objects of data of known form."""

    def counted(value, most, deepest):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pickles, "MOST", most)
            patch.setattr(pickles, "DEEPEST", deepest)
            pickles._count(io.BytesIO(pickle.dumps(value, 2)), "x")

    def nested(depth):
        value = ()
        for _ in range(depth):
            value = (value,)
        return value

    counted(nested(7), 100, 7)
    with pytest.raises(InputError, match="nests deeper"):
        counted(nested(8), 100, 7)
    counted(list(range(900)), 1000, 1)
    with pytest.raises(InputError, match="of more than 1,000 objects"):
        counted(list(range(1001)), 1000, 1)
    counted([list(range(9))] * 100, 1000, 2)  # the same list many times over is one
    counted(OrderedDict.fromkeys(range(100)), 1000, 3)


def test_real_checkpoints_are_far_from_the_limits(tmp_path):
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(100)))
    moments = {
        i: {"step": torch.tensor(1.0), "exp_avg": p, "exp_avg_sq": p}
        for i, p in enumerate(model.parameters())
    }
    optimizer = {"state": moments, "param_groups": [{"lr": 1e-3, "params": list(moments)}]}
    whole = {"model": model.state_dict(), "optimizer": optimizer, "losses": [0.5] * 10_000}
    for old in (False, True):
        torch.save(whole, tmp_path / "x.pt", _use_new_zipfile_serialization=not old)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pickles, "MOST", 10**5)
            patch.setattr(pickles, "DEEPEST", 20)
            assert len(files.read(tmp_path / "x.pt").tensors) == 200


# ---- tensors -------------------------------------------------------------------------------------


def test_tensors_that_are_the_same_numbers_many_times_are_refused(tmp_path):
    tensor = torch.ones(1000)
    torch.save({f"a{i}": tensor for i in range(3)}, tmp_path / "x.pt")
    assert (
        len(files.read(tmp_path / "x.pt").tensors) == 3
    )  # such as a table of words that is the read-out too
    torch.save({f"a{i}": tensor[1:] for i in range(500)}, tmp_path / "x.pt")
    refuse(
        tmp_path / "x.pt",
        "bytes, but its tensors have 1,998,000, because they share memory",
        files.read,
    )


def test_tensors_that_are_not_in_the_file_are_refused(tmp_path):
    """A class of tensors that is called with a size makes one of whatever stands in memory."""
    for write in (new_format, old_format):
        write(tmp_path / "x.pt", b"}" + text("a") + b"ctorch\nFloatTensor\nJ\x00\x00\x00\x10\x85Rs")
        refuse(tmp_path / "x.pt", "its tensors have|is cut off|asks for", files.read)


def test_nested_and_other_strange_tensors_are_refused(tmp_path):
    with warnings.catch_warnings(action="ignore"):  # torch's own, about what is new
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
        others = [
            torch.ones(2, 2).to_sparse_csr(),
            torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
        ]
    for strange in (nested, *others):
        torch.save({"a": strange}, tmp_path / "x.pt")
        refuse(tmp_path / "x.pt", "'a' is no plain tensor", files.read)
    torch.save({"a": jagged}, tmp_path / "x.pt")
    refuse(
        tmp_path / "x.pt",
        "'a' is no plain tensor|this one asks for|this one holds something else",
        files.read,
    )
    # In memory: a module of somebody else, and one of ours.
    theirs, ours = torch.nn.Module(), tiny_runs.checkpoint().model
    for strange in (nested, jagged, torch.empty(2, device="meta")):
        theirs.register_buffer("a", strange)
        refuse(theirs, "'a' is no plain tensor", files.read)
        ours.unembed.b_U = torch.nn.Parameter(strange, requires_grad=False)
        refuse(ours, "the model: 'unembed.b_U' is no plain tensor")


# ---- memory and time -----------------------------------------------------------------------------


PROBE = """
import resource, sys
from icl_interp.checkpoints import store
from icl_interp.errors import InputError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        store.load(path)
        sys.exit("it was read")
    except InputError as error:
        print(error, file=sys.stderr)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def memory_of(*paths):
    """Kilobytes that loading these takes at most, beside what the packages take."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *paths], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr[-500:]
    return int(run.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("write", [new_format, old_format])
def test_the_limit_itself_is_reached_in_seconds(tmp_path, write):
    write(tmp_path / "x.pt", b"]" + b"]a" * (5 * 10**6))
    started = time.process_time()
    refuse(tmp_path / "x.pt", "holds a pickle of more than 1,000,000 objects", files.read)
    assert time.process_time() - started < 20


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "RUSAGE_SELF"), reason="memory is not measured here")
def test_memory_is_bounded(tmp_path):
    content = members()
    archived(
        tmp_path / "zip.pt",
        {**content, "archive/version": b"1" * 10**9},
        packed=["archive/version"],
    )
    old_format(tmp_path / "lists.pt", b"]" + b"]a" * (5 * 10**6))
    new_format(tmp_path / "tuples.pt", PICKLES["tuples in a key"][0])
    new_format(tmp_path / "bytes.pt", PICKLES["bytes of a number"][0])
    new_format(tmp_path / "texts.pt", PICKLES["copies of a text"][0])
    assert (
        memory_of(
            *(tmp_path / f"{name}.pt" for name in ("zip", "lists", "tuples", "bytes", "texts"))
        )
        < 500_000
    )
