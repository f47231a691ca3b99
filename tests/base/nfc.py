#!/usr/bin/env python3
"""utf8_nfc and utf8_is_nfc against Python's own tables: every code point that Python knows, alone,
decomposed, in front of marks and behind letters; and random strings of those that change.

    nfc.py NFC_LINES        the program of nfc_lines.c
"""
import os
import random
import subprocess
import sys
import unicodedata


def nfc(s):
    return unicodedata.normalize('NFC', s)


def nfd(s):
    return unicodedata.normalize('NFD', s)


def known():
    return [chr(c) for c in range(0x110000)
            if c != 0x0A and unicodedata.category(chr(c)) not in ('Cn', 'Cs')]


def random_texts(interesting, seed):
    rng = random.Random(seed)
    marks = [c for c in interesting if unicodedata.combining(c)]
    for _ in range(20000):
        yield ''.join(rng.choice(marks if rng.random() < 0.5 else interesting)
                      for _ in range(rng.randint(2, 12)))
    # marks in more than one run, and more of them than any buffer of a normaliser holds
    for n in (31, 32, 33, 63, 64, 65, 255, 256, 257, 5000):
        yield 'a' + ''.join(rng.choice(marks) for _ in range(n)) + '\u0301'


def main():
    seed = int(os.environ.get('HEARTH_SEED', random.SystemRandom().randrange(1 << 32)))
    print(f'nfc: HEARTH_SEED={seed}')
    chars = known()
    changing = [c for c in chars if nfd(c) != c or nfc(c) != c]
    interesting = changing[::7] + [c for c in chars if unicodedata.combining(c)]
    interesting += list('aeo \u1100\u1161\u11a8')
    texts = chars + [nfd(c) for c in changing] + [c + '\u0301\u0327' for c in chars]
    texts += ['a' + c for c in chars] + list(random_texts(interesting, seed))
    r = subprocess.run([sys.argv[1]], input='\n'.join(texts).encode() + b'\n',
                       stdout=subprocess.PIPE, check=True, timeout=250)
    lines = r.stdout.decode().split('\n')[:-1]
    assert len(lines) == len(texts), f'{len(lines)} lines of {len(texts)}'
    n_sure = 0
    for text, line in zip(texts, lines):
        is_nfc, got = line[0] == '1', line[2:]
        assert got == nfc(text), f'{ascii(text)}: is {ascii(got)}, not {ascii(nfc(text))}'
        assert not is_nfc or got == text, f'{ascii(text)} is said to be normalised'
        n_sure += is_nfc
    assert n_sure > 10000, f'the quick check says yes to {n_sure} of {len(texts)} texts'
    print(f'{len(texts)} texts, {n_sure} of them known to be normalised without looking further')


if __name__ == '__main__':
    main()
