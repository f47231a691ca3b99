"""The hot functions of the AVX2, AVX-512 and AMX kernels keep their vectors in registers, and the
integer products of the latter two are VNNI's and the tiles'.

A spilled accumulator costs little once for each block of 32, and half the speed inside a loop over
k: attention of few queries ran at 12.6 GB/s with one and at 19.9 without. So the loops whose tiles
just fit sixteen registers may have no vector access to the stack at all; the others have a ceiling,
which is what they had when they were last looked at.

    spills.py OBJDUMP AVX2 AVX512 AMX

Exit 77 (skipped) when the objects aren't gcc's: another compiler's ceilings would be others.
"""
import re
import subprocess
import sys

CEILINGS = {
    'strip_scores_f32': 0,
    'strip_scores_f16': 0,
    'strip_values_f32': 0,
    'q8_scores_open': 0,
    'q8_scores_stored': 0,
    'q8_values_open': 0,
    'q8_values_stored': 0,
    'strip_values_f16': 0,
    'attn_queries': 2,
    # Once a block; nothing inside the products. Sums of one half of the columns wait in memory for
    # the other's where four rows of both don't fit (VX_PARK): 8 for 4 rows, 7 for 3.
    'gemm_u4_d': 8,
    'gemm_u4_dm': 0,
    'gemm_u4_k': 4,
    'gemm_nl_d': 30,
    'gemm_u5_d': 15,
    'gemm_u5_dm': 15,
    'gemm_u5_k': 28,
    'gemm_s8_d': 4,
    'gemm_u6_k16': 36,
    'gemm_u3_k16': 42,
    'gemm_u2_k16': 46,
    'attn_softmax': 4,
}
# With 32 registers nothing has to wait; gcc keeps a constant there once.
PRODUCTS = [name for name in CEILINGS if name.startswith('gemm_')]
CEILINGS_512 = dict.fromkeys(PRODUCTS, 0) | {
    'strip_scores_f32': 0,
    'strip_scores_f16': 0,
    'strip_values_f32': 0,
    'strip_values_f16': 0,
    'attn_queries': 2,
    'attn_softmax': 4,
}
# Products of one tile of AMX for each block; of two where each 16 k have scales.
TILES = {name.replace('gemm_', 'amx_tile_'): 2 if name.endswith('k16') else 1 for name in PRODUCTS}
# Eight vectors of a block of 32, in tiles of 1, 2, 3 and 4 rows.
DPBUSD = 8 * (1 + 2 + 3 + 4)
FUNCTION = re.compile(r'^[0-9a-f]+ <([^>]+)>:')
STACK = re.compile(r'%[yz]mm.*\(%r[sb]p\)|\(%r[sb]p\).*%[yz]mm')


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def count(objdump, path, pattern):
    """Lines that match, by function (a part that gcc split off counts with its own)."""
    text = output(objdump, '-d', '--no-show-raw-insn', path)
    counts, name = {}, None
    for line in text.splitlines():
        head = FUNCTION.match(line)
        if head:
            name = head.group(1).split('.')[0]
            counts.setdefault(name, 0)
        elif name and pattern.search(line):
            counts[name] += 1
    return counts


def spilled(objdump, path, ceilings):
    """How many functions have more vector accesses to the stack than they may."""
    counts, wrong = count(objdump, path, STACK), 0
    for name, ceiling in ceilings.items():
        n = counts.get(name)
        if n is None:
            print(f'{name}: not in the object')
            wrong += 1
        elif n > ceiling:
            print(f'{name}: {n} vector accesses to the stack, at most {ceiling}')
            wrong += 1
        else:
            print(f'{name}: {n}')
    return wrong


def main():
    objdump, avx2, avx512, amx = sys.argv[1:]
    if not objdump:
        print('skipped: no objdump here')
        return 77
    comment = output(objdump, '-s', '-j', '.comment', avx2)
    if 'GCC' not in ''.join(line[-16:] for line in comment.splitlines()):
        print('skipped: not compiled by gcc')
        return 77
    wrong = spilled(objdump, avx2, CEILINGS)
    print('avx512:')
    wrong += spilled(objdump, avx512, CEILINGS_512)
    products = count(objdump, avx512, re.compile(r'vpdpbusd '))
    for name in PRODUCTS:
        if products.get(name, 0) < DPBUSD:
            print(f'{name}: {products.get(name, 0)} vpdpbusd, expected {DPBUSD}')
            wrong += 1
    print('amx:')
    wrong += spilled(objdump, amx, CEILINGS_512 | dict.fromkeys(TILES, 0))
    products = count(objdump, amx, re.compile(r'tdpbsud '))
    for name, n in TILES.items():
        if products.get(name, 0) != n:
            print(f'{name}: {products.get(name, 0)} tdpbsud, expected {n}')
            wrong += 1
    for what in 'ldtilecfg', 'tilerelease':
        if not sum(count(objdump, amx, re.compile(what)).values()):
            print(f'{what}: not in the object')
            wrong += 1
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
