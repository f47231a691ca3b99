"""Reads a GGUF: keys and tensors, F32, F16 and Q8_0, for the references beside it."""
import math
import struct

SIZES = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}


class Gguf:
    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data = f.read()
        self.at = 4
        assert self.data[:4] == b'GGUF' and self.number('I') == 3
        n_tensors, n_keys = self.number('Q'), self.number('Q')
        self.keys, self.tensors = {}, {}
        for _ in range(n_keys):
            key = self.string().decode()
            self.keys[key] = self.value(self.number('I'))
        for _ in range(n_tensors):
            name = self.string().decode()
            dims = [self.number('Q') for _ in range(self.number('I'))]
            self.tensors[name] = (dims, self.number('I'), self.number('Q'))
        step = self.keys.get('general.alignment', 32)
        self.begin = -(-self.at // step) * step

    def number(self, kind):
        v = struct.unpack_from('<' + kind, self.data, self.at)[0]
        self.at += struct.calcsize(kind)
        return v

    def string(self):
        n = self.number('Q')
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            item, n = self.number('I'), self.number('Q')
            return [self.value(item) for _ in range(n)]
        return self.number(SIZES[kind])

    def values(self, kind, at, n):
        """n floats from byte `at` of the file on."""
        if kind == 0:
            return list(struct.unpack_from(f'<{n}f', self.data, at))
        if kind == 1:
            return list(struct.unpack_from(f'<{n}e', self.data, at))
        assert kind == 8, f'tensor type {kind}'
        out = []
        for b in range(n // 32):
            scale, *q = struct.unpack_from('<e32b', self.data, at + 34 * b)
            out += [scale * x for x in q]
        return out

    def rows(self, name, which=None):
        """A matrix as a list of rows (only those of `which`), a vector as one list."""
        dims, kind, offset = self.tensors[name]
        n, at = dims[0], self.begin + offset
        row_bytes = {0: 4 * n, 1: 2 * n, 8: n // 32 * 34}[kind]
        if len(dims) == 1:
            return self.values(kind, at, n)
        which = range(math.prod(dims[1:])) if which is None else which
        return [self.values(kind, at + r * row_bytes, n) for r in which]
