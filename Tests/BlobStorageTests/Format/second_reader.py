#!/usr/bin/env python3
"""A second reader of stores, written from the page Format.md alone: it shares no line with the library.

usage: second_reader.py STORE

Checks every checksum, compares each footer with its records, decodes every chunk and manifest, and checks
their digests. Prints JSON: the packs, what was verified, and every visible version, keys in byte order and
newest first. Anything wrong: one sentence on standard error, and status 1.

It is stricter than a reader must be. It refuses a record whose checksums match but whose fields are invalid,
where others see a torn tail. It also refuses a pack with a damaged header and a version of an unknown blob.
"""
import collections, ctypes, functools, hashlib, json, os, re, struct, sys, zlib

from blake3 import blake3

MIB = 1 << 20
CONTINUES = 0x20
# What was met, for tests to see that a store has it.
MET = collections.Counter()


class Wrong(Exception):
    """One sentence that says what is wrong."""


class Torn(Wrong):
    """No record stands at this place: damage, or the torn tail of a pack without a footer."""


class Missing(Wrong):
    """The store lacks a chunk. Only a blob with a visible version needs all of its chunks."""


def need(condition, sentence, error=Wrong):
    if not condition:
        raise error(sentence)


# Numbers and checksums


class Fields:
    """Reads the fields of some bytes, one after the other."""

    def __init__(self, data, what):
        self.data, self.at, self.what = data, 0, what

    def need(self, condition, problem):
        need(condition, f"{self.what} {problem}")

    def bytes(self, count):
        self.need(0 <= count <= len(self.data) - self.at, "ends within a field")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size):
        return int.from_bytes(self.bytes(size), "little")

    def varint(self, most=2**64 - 1):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.need(byte or not shift, "has a number that is not in its shortest encoding")
                self.need(value <= most, "has a number beyond its maximum")
                return value
        raise Wrong(f"{self.what} has a number of more than ten bytes")

    def signed(self):
        value = self.varint()
        return -(value + 1) // 2 if value & 1 else value // 2

    def is_at_end(self):
        return self.at == len(self.data)


CRC = []
for entry in range(256):
    for _ in range(8):
        entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)
    CRC.append(entry)


def checksum(data, before=0):
    """CRC-32C of bytes, going on from the checksum of those before."""
    value = before ^ 0xFFFFFFFF
    for byte in data:
        value = CRC[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def is_guarded(data):
    """Whether the last of 64 bytes are the checksum of those before."""
    return len(data) == 64 and checksum(data[:60]) == int.from_bytes(data[60:], "little")


DIGESTS = {1: ("blake3", blake3), 2: ("sha256", lambda data: hashlib.sha256(data).digest())}

# Codecs

ZSTD = ctypes.CDLL("libzstd.so.1" if sys.platform == "linux" else "libzstd.dylib")
SIZE, POINTER, BYTES = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
for name, result, arguments in [
    ("createDCtx", POINTER, []),
    ("findFrameCompressedSize", SIZE, [BYTES, SIZE]),
    ("DCtx_refPrefix", SIZE, [POINTER, BYTES, SIZE]),
    ("decompressDCtx", SIZE, [POINTER, POINTER, SIZE, BYTES, SIZE]),
]:
    function = getattr(ZSTD, "ZSTD_" + name)
    function.restype, function.argtypes = result, arguments
CONTEXT = ZSTD.ZSTD_createDCtx()


def decoded(codec, stored, length, what, base=b""):
    """The plain bytes, of which there must be `length`."""
    plain = None
    if codec == 0:
        plain = stored
    elif codec == 1:
        frame = ZSTD.ZSTD_findFrameCompressedSize(stored, len(stored))
        need(frame == len(stored), f"{what} is not one zstd frame")
        buffer = ctypes.create_string_buffer(max(length, 1))
        if base:
            ZSTD.ZSTD_DCtx_refPrefix(CONTEXT, base, len(base))
        count = ZSTD.ZSTD_decompressDCtx(CONTEXT, buffer, length, stored, len(stored))
        plain = buffer.raw[:count] if count <= length else None
    elif codec == 2:
        stream = zlib.decompressobj()
        try:
            plain = stream.decompress(stored, length + 1)
        except zlib.error:
            pass
        need(stream.eof and not stream.unused_data, f"{what} is not one zlib stream")
    is_whole = plain is not None and len(plain) == length
    need(is_whole, f"{what} cannot be decoded by codec {codec} to {length} bytes")
    return plain


# What records say: each parser returns a list of these. A chunk's `decode` needs the plain bytes of its base.

Record = collections.namedtuple("Record", "at kind meta size payload end")
Chunk = collections.namedtuple("Chunk", "what place digest length base decode")
Manifest = collections.namedtuple("Manifest", "what place digest length depth parts")
Commit = collections.namedtuple("Commit", "what synced entries")
Ref = collections.namedtuple("Ref", "key stamp replaced created blob metadata")
Drop = collections.namedtuple("Drop", "key stamp versions")


def parsed_chunk(record, meta, pack):
    digest, codec, flags = meta.bytes(32), meta.number(1), meta.number(1)
    meta.need(flags < 4, "has flags that are not known")
    length = meta.varint(8 * MIB) if codec else record.size
    base = meta.bytes(32) if flags & 1 else None
    meta.bytes(12 if flags & 2 else 0)
    meta.need(meta.is_at_end(), "is too long")
    meta.need(base != digest and (codec == 1 or not base), "has an impossible base")
    meta.need(codec == 0 or 0 < record.size < length, "has a payload of an impossible length")
    decode = functools.partial(decoded, codec, record.payload, length, meta.what)
    return [Chunk(meta.what, record.at, digest, length, base, decode)]


def parsed_frame(record, meta, pack):
    codec, count = meta.number(1), meta.varint(248)
    digests = [meta.bytes(32) for _ in range(count)]
    fields = [meta.varint(4 * MIB + 1) for _ in range(count)]
    meta.bytes(12 * sum(field & 1 for field in fields))
    lengths = [field >> 1 for field in fields]
    total = sum(lengths)
    meta.need(meta.is_at_end(), "is too long")
    MET["member with features"] += sum(field & 1 for field in fields)
    meta.need(codec and count >= 2 and all(lengths) and total <= 2 * MIB, "has impossible members")
    meta.need(0 < record.size < total, "has a payload of an impossible length")

    @functools.cache
    def plain():
        meta.need(codec == 1, "has a codec that is not known")
        return decoded(codec, record.payload, total, meta.what)

    members, start = [], 0
    shared = record.end - record.at - 32 * count
    for index, (digest, length) in enumerate(zip(digests, lengths)):
        place = record.at + 32 * index + shared * start // total
        decode = lambda base, start=start, end=start + length: plain()[start:end]
        members.append(Chunk(f"member {index} of {meta.what}", place, digest, length, None, decode))
        start += length
    return members


def parsed_manifest(record, meta, pack):
    need(len(record.meta) == 56, f"{meta.what} has another length")
    digest, depth, zeros, count, length, chunks = struct.unpack("<32sB3sIQQ", record.meta)
    meta.need(depth < 2 and not any(zeros), "has values that are not known")
    meta.need(count <= 131_072 and length <= 2**48 and chunks >= 2, "has an impossible number")
    meta.need(record.size == count * (44 if depth else 36), "has a payload of an impossible length")
    parts = table(record.payload, depth, meta.what)
    meta.need(sum(part[1] for part in parts) == chunks, "does not list as many chunks as it says")
    meta.need(sum(part[2] for part in parts) == length, "does not list as many bytes as it says")
    return [Manifest(meta.what, record.at, digest, length, depth, parts)]


def table(data, depth, what):
    """Digest, number of chunks and plain length of all that a manifest or a list names."""
    if depth:
        parts = list(struct.iter_unpack("<32sIQ", data))
    else:
        parts = [(digest, 1, length) for digest, length in struct.iter_unpack("<32sI", data)]
    need(all(0 < chunks <= 131_072 and 0 < length <= (2**48 if depth else 8 * MIB) for _, chunks, length in parts),
         f"{what} lists an impossible length")
    return parts


def parsed_commit(record, fields, pack):
    what, content = fields.what, record.payload or record.meta
    is_in_place = not record.payload or not record.meta and record.size > 8_192
    fields.need(is_in_place, "has its content in a wrong place")
    fields = Fields(content, what)
    flags = fields.number(1)
    MET["compressed entries" if flags & 1 else "plain entries"] += 1
    MET["content in the payload" if record.payload else "content in the meta"] += 1
    MET["continued commit"] += bool(record.kind & CONTINUES)
    fields.need(flags < 4, "has flags that are not known")
    synced = fields.varint(record.at) if flags & 2 else 0
    if flags & 1:
        length = fields.varint(2 * MIB)
        fields = Fields(decoded(1, content[fields.at :], length, what), what)
    fields.need(len(fields.data) - fields.at <= 2 * MIB, "has too many bytes of entries")
    entries, key, time, place, unfolded = [], b"", 0, record.at, 0

    def stamp(time, writer):
        fields.need(0 <= time < 2**63 and (time or writer), "has an invalid stamp")
        return time, writer

    def further(after):
        time, how = after[0] + fields.signed(), fields.number(1)
        fields.need(how < 3, "has an invalid stamp")
        MET[f"further stamp of kind {how}"] += 1
        return stamp(time, (pack.writer, None, after[1])[how] if how != 1 else fields.number(8))

    while not fields.is_at_end():
        flags = fields.number(1)
        is_drop = flags & 0x80
        unknown = flags & (0x7B if is_drop else 0x40)
        fields.need(not unknown and flags & 3 < 3, "has flags that are not known")
        shared = fields.varint(len(key)) if entries else 0
        key = key[:shared] + fields.bytes(fields.varint(4_096 - shared))
        fields.need(key and 0 not in key, "has an invalid key")
        first = None if entries else fields.varint(2**47 - 1) << 16 | fields.varint(65_535)
        time = time + fields.signed() if entries else first
        MET["stamp with its writer"] += bool(flags & 4)
        own = stamp(time, fields.number(8) if flags & 4 else pack.writer)
        unfolded += 128 + len(key)
        if is_drop:
            versions = [own]
            for _ in range(fields.varint(4_096)):
                versions.append(further(versions[-1]))
            fields.need(len(versions) > 1, "drops no version")
            MET["drop of several versions"] += len(versions) > 2
            unfolded += 16 * (len(versions) - 1)
            entries.append(Drop(key, own, versions[1:]))
            continue
        replaced = further(own) if flags & 8 else None
        fields.need(replaced != own, "has a version that replaces itself")
        created = (time >> 16) + (fields.signed() if flags & 16 else 0)
        blob = None  # The chunk or manifest before.
        if flags & 3 == 0:
            blob = fields.bytes(32), fields.varint(2**48)
        elif flags & 3 == 2:
            blob = place = place + fields.signed()
            fields.need(64 <= place < record.at, "names an impossible place")
        metadata = fields.bytes(fields.varint(1_024)) if flags & 32 else None
        fields.need(metadata != b"", "has empty metadata")
        unfolded += len(metadata or b"")
        entries.append(Ref(key, own, replaced, (created + 2**63) % 2**64 - 2**63, blob, metadata or b""))
    fields.need(0 < len(entries) <= record.end - record.at, "has an impossible number of entries")
    fields.need(unfolded <= 8 * MIB, "is too long")
    return [Commit(what, synced, entries)]


# Of each type: its parser, its flags, and whether the footer has its digest apart and its payload.
Kind = collections.namedtuple("Kind", "name parsed flags has_digest_apart has_payload")
KINDS = {
    1: Kind("chunk", parsed_chunk, 0, True, False),
    2: Kind("manifest", parsed_manifest, 0, True, False),
    3: Kind("commit", parsed_commit, CONTINUES, False, True),
    4: Kind("frame", parsed_frame, 0, False, False),
}
def skipped(record, meta, pack):
    MET["skipped record"] += 1
    return []


SKIPPED = Kind("skipped record", skipped, 0x60, False, False)


def kind_of(record, what):
    number = record.kind & 0x9F
    kind = SKIPPED if number > 128 else KINDS.get(number)
    need(kind and not record.kind & 0x60 & ~kind.flags, f"{what} has a type or flags that are not known")
    return kind


# Packs


class Pack:
    def __init__(self, folder, name, store):
        self.name, self.writer, self.number = name, int(name[:16], 16), int(name[17:], 16)
        with open(os.path.join(folder, name + ".pack"), "rb") as file:
            self.data = file.read(1024 * MIB + 1)
        need(64 <= len(self.data) <= 1024 * MIB, f"pack {name} has an impossible length")
        mark, version, zeros, algorithm, more_zeros, *place, self.time, salt = struct.unpack(
            "<8sHH B3s16sQIQ8s", self.data[:60])
        is_valid = mark == b"BLOBPACK" and version == 2 and is_guarded(self.data[:64])
        need(is_valid, f"pack {name} has a damaged header")
        own = [store.algorithm, store.id, self.writer, self.number]
        need([algorithm, *place] == own and self.number, f"pack {name} has the header of another place")
        is_known = not zeros and not any(more_zeros + salt) and self.time < 2**63
        need(is_known, f"pack {name} has a header with values that are not known")
        trailer = self.read_trailer()
        self.is_sealed = trailer is not None
        self.end = trailer[0] if trailer else len(self.data)
        self.said, self.entries = [], []
        self.read_records()
        if trailer:
            self.compare_footer(*trailer)

    def seed(self, offset):
        """The checksum of the 24 bytes that bind others to their place."""
        return checksum(struct.pack("<QQQ", self.writer, offset, self.number))

    def record(self, at):
        what = f"record at {at} of pack {self.name}"
        try:
            fields = Fields(self.data[at : min(at + 13, self.end)], what)
            fields.need(fields.bytes(2) == b"\xfb\x52", "does not begin as one")
            kind, meta_size, size = fields.number(1), fields.varint(8_192), fields.varint(8 * MIB)
            header_sum = fields.number(4)
            meta, payload = at + fields.at, at + fields.at + meta_size
            end = payload + size + (4 if size else 0)
            fields.need(end <= self.end, "ends behind the records")
            head = self.data[at : meta - 4] + self.data[meta:payload]
            fields.need(checksum(head, self.seed(at)) == header_sum, "does not match its header checksum")
            last = checksum(self.data[payload : payload + size], header_sum).to_bytes(4, "little")
            fields.need(not size or last == self.data[end - 4 : end], "does not match its payload checksum")
        except Wrong as error:
            raise Torn(str(error)) from None
        return Record(at, kind, self.data[meta:payload], size, self.data[payload : payload + size], end)

    def things(self, record):
        what = f"record at {record.at} of pack {self.name}"
        kind = kind_of(record, what)
        return kind.parsed(record, Fields(record.meta, f"{kind.name} {what}"), self)

    def read_records(self):
        """Reads record by record, and ends an unsealed pack where its torn tail begins."""
        at, pending, named, before = 64, [], {}, None
        while at < self.end:
            try:
                record = self.record(at)
            except Torn:
                if self.is_sealed:
                    raise
                self.check_tail(at)
                break
            things = self.things(record)
            for thing in things:
                if isinstance(thing, (Chunk, Manifest)):
                    named[thing.place] = thing
                    continue
                pending.append((at, [self.resolved(entry, named, before, thing) for entry in thing.entries]))
                if not record.kind & CONTINUES:
                    self.entries += [entry for _, entries in pending for entry in entries]
                    pending, named = [], {}
            self.said.append((record, things))
            before = things[-1].place if things and not isinstance(things[-1], Commit) else None
            at = record.end
        need(not pending or not self.is_sealed, f"pack {self.name} is sealed within a commit")
        self.end = pending[0][0] if pending else at
        self.said = [(record, things) for record, things in self.said if record.at < self.end]
        self.blobs = [thing for _, things in self.said for thing in things if not isinstance(thing, Commit)]

    @staticmethod
    def resolved(entry, named, before, commit):
        """A ref with its blob as digest and length."""
        if isinstance(entry, Drop) or isinstance(entry.blob, tuple):
            return entry
        blob = named.get(before if entry.blob is None else entry.blob)
        need(blob, f"{commit.what} names a record that is not of its commit")
        return entry._replace(blob=(blob.digest, blob.length))

    def check_tail(self, at):
        """Refuses a tail in which a record says that more of the pack had been synced."""
        place = at
        while (place := self.data.find(b"\xfb\x52", place + 1)) >= 0:
            try:
                things = self.things(self.record(place))
            except Torn:
                continue
            synced = max((thing.synced for thing in things if isinstance(thing, Commit)), default=0)
            need(synced <= at, f"pack {self.name} is damaged at {at}: it had been synced up to {synced}")

    def read_trailer(self):
        """Where the footer begins and how many things the records say; None if the pack is not sealed."""
        at = len(self.data) - 64
        mark, things, begin, length, *place = struct.unpack("<8s4xIQI8xQI12x", self.data[at : at + 60])
        is_possible = things <= 2**23 and length <= 256 * MIB and begin >= 64 and begin + length == at
        is_own = mark == b"BLOBFOOT" and is_guarded(self.data[at:]) and place == [self.writer, self.number]
        return (begin, things) if is_own and is_possible else None

    def compare_footer(self, begin, things):
        at, following, listed = begin, 64, []
        while at < len(self.data) - 64:
            what = f"footer block at {at} of pack {self.name}"
            head = Fields(self.data[at : at + 32], what).bytes(32)
            codec, zeros, length, stored, apart, first, more, sum_read = struct.unpack("<B3sIIIQII", head)
            body = self.data[at + 32 : at + 32 + stored + apart]
            need(0 < length <= 8 * MIB and stored <= length and apart <= 8 * MIB, f"{what} is too long")
            need(checksum(head[:28] + body, self.seed(at)) == sum_read, f"{what} is damaged")
            need(first == following and not any(zeros) and not more, f"{what} has an invalid header")
            fields = Fields(decoded(codec, body[:stored], length, what), what)
            digests = Fields(body[stored:], what)
            while not fields.is_at_end():
                start = fields.at
                number, meta_size, size = fields.number(1), fields.varint(8_192), fields.varint(8 * MIB)
                end = following + 6 + (fields.at - start) + meta_size + size + (4 if size else 0)
                kind = kind_of(Record(following, number, b"", size, b"", end), what)
                meta = digests.bytes(32) if kind.has_digest_apart else b""
                meta += fields.bytes(meta_size - len(meta))
                payload = fields.bytes(size) if kind.has_payload else b""
                listed.append(Record(following, number, meta, size, payload, end))
                following = end
            digests.need(digests.is_at_end(), "has too many digests")
            at += 32 + len(body)
        need(at == len(self.data) - 64 and following == begin, f"the footer of pack {self.name} does not fit")
        count = 0
        need(len(listed) == len(self.said), f"the footer of pack {self.name} lists another number of records")
        for (record, said), repeated in zip(self.said, listed):
            record = record if kind_of(record, self.name).has_payload else record._replace(payload=b"")
            need(record == repeated, f"the footer of pack {self.name} says otherwise at {record.at}")
            count += sum(len(thing.entries) if isinstance(thing, Commit) else 1 for thing in said) or 1
        need(count == things, f"the trailer of pack {self.name} counts otherwise than its records")


# The store


class Store:
    def __init__(self, path):
        self.read_header(path)
        folder = os.path.join(path, "packs")
        self.read_census(path)
        files = sorted(os.listdir(folder))
        names = [name[:-5] for name in files if re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]{8}\.pack", name)]
        self.packs = [Pack(folder, name, self) for name in names if not self.has_left(name)]
        ends = {pack.name: pack.end for pack in self.packs}
        for name, end in self.ends.items():
            is_out = self.has_left(name) or name + ".gone" in files
            need(is_out or ends.get(name, 0) >= end, f"pack {name} is lost or ends before {end}")
        # Of two copies of a chunk, one without a base wins, then the one of the younger pack.
        chunks = [(pack, thing) for pack in self.packs for thing in pack.blobs if isinstance(thing, Chunk)]
        chunks.sort(key=lambda copy: (copy[1].base is None, copy[0].time))
        self.chunks = {chunk.digest: chunk for _, chunk in chunks}

    def read_header(self, path):
        with open(os.path.join(path, "store"), "rb") as file:
            data = file.read(65)
        need(data.startswith(b"BLOBSTOR"), "the folder is not a store")
        need(data[8:10] == b"\2\0", "the store has another format version")
        need(is_guarded(data), "the store header is damaged")
        need(data[15] == 0, "the store is encrypted")
        layout = "<10xHBB2xI12s16s8x4s4x"
        flags, self.algorithm, codec, average, zeros, self.id, more_zeros = struct.unpack(layout, data)
        is_known = flags < 4 and self.algorithm in DIGESTS and codec < 3 and not any(zeros + more_zeros)
        need(is_known, "the store header has values that are not known")
        is_power = average.bit_count() == 1 and 1_024 <= average <= 2 * MIB
        need(is_power, "the store header has an impossible length of chunks")
        self.algorithm_name, self.digest = DIGESTS[self.algorithm]

    def read_census(self, path):
        """Finds which packs have left the store, and where the records of the others end at least."""
        self.removed, self.aside, self.ends, text = [], set(), {}, b""
        if os.path.exists(os.path.join(path, "census")):
            with open(os.path.join(path, "census"), "rb") as file:
                text = file.read()
        for line in text.split(b"\n"):
            said, _, sum_read = line.rpartition(b" ")
            if sum_read != b"%08x" % checksum(said):
                continue
            word, name, *rest = said.decode("ascii").split(" ")
            MET[f"census: {word}"] += 1
            if word == "removed":
                self.removed.append((name, f"{name[:17]}{rest[0]}"))
            elif word == "set-aside":
                self.aside.add(name)
            elif word in ("begun", "sealed"):
                self.ends[name] = max(self.ends.get(name, 64), int(rest[0]) if rest else 64)

    def has_left(self, name):
        return name in self.aside or any(first <= name <= last for first, last in self.removed)

    @functools.lru_cache(maxsize=16)
    def plain(self, chunk):
        base = self.chunks.get(chunk.base)
        need(base or not chunk.base, f"{chunk.what} needs a base that is not there", Missing)
        need(not base or not base.base, f"{chunk.what} has a base that has a base")
        return chunk.decode(self.plain(base) if base else b"")

    def part(self, digest, length, what):
        chunk = self.chunks.get(digest)
        need(chunk, f"{what} names chunk {digest.hex()}, which is not there", Missing)
        need(chunk.length == length, f"{what} names a chunk of another length")
        return self.plain(chunk)

    def blob(self, manifest):
        parts, what = manifest.parts, manifest.what
        if manifest.depth:
            parts = []
            for digest, count, length in manifest.parts:
                listed = table(self.part(digest, 36 * count, what), 0, what)
                need(sum(part[2] for part in listed) == length, f"{what} has a list of another length")
                parts += listed
        return b"".join(self.part(digest, length, what) for digest, _, length in parts)

    def verify(self):
        """Decodes all chunks and manifests of all packs, and counts them. Garbage may lack what it needs."""
        self.whole, counts = set(), collections.Counter()
        for thing in (thing for pack in self.packs for thing in pack.blobs):
            is_chunk = isinstance(thing, Chunk)
            try:
                data = self.plain(thing) if is_chunk else self.blob(thing)
            except Missing:
                continue
            need(self.digest(data) == thing.digest, f"{thing.what} does not match its digest")
            self.whole.add((thing.digest, len(data)))
            counts["chunkCount" if is_chunk else "manifestCount"] += 1
        return counts

    def versions(self):
        refs, hidden = {}, set()
        for entry in (entry for pack in self.packs for entry in pack.entries):
            if isinstance(entry, Drop):
                hidden.update((entry.key, version) for version in entry.versions)
                continue
            hidden.add((entry.key, entry.replaced))
            other = refs.setdefault((entry.key, entry.stamp), entry)
            need(other.blob == entry.blob, f"two refs of {entry.key!r} with one stamp name two blobs")
        listed = sorted(refs.keys() - hidden, key=lambda name: (name[0], -name[1][0], -name[1][1]))
        for index, (key, stamp) in enumerate(listed):
            ref, (digest, length) = refs[key, stamp], refs[key, stamp].blob
            need(ref.blob in self.whole, f"blob {digest.hex()} of key {key!r} cannot be read")
            yield {"key": key.decode(errors="backslashreplace"), "version": "%016x%016x" % stamp,
                   "isCurrent": index == 0 or listed[index - 1][0] != key, "created": ref.created,
                   "digest": f"{self.algorithm_name}:{digest.hex()}", "byteCount": length,
                   "metadata": ref.metadata.hex()}


def main():
    try:
        need(len(sys.argv) == 2, "usage: second_reader.py STORE")
        store = Store(sys.argv[1])
        counts = store.verify()
        packs = [{"name": pack.name, "isSealed": pack.is_sealed, "end": pack.end} for pack in store.packs]
        versions = list(store.versions())
        met = sorted(name for name, count in MET.items() if count)
        print(json.dumps({"packs": packs, **counts, "met": met, "versions": versions}, indent=1))
    except (Wrong, OSError, ValueError) as error:
        sys.exit(f"second_reader: {error}.")


if __name__ == "__main__":
    main()
