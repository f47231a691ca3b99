"""The hot functions of the AVX2 kernels keep their vectors in registers.

A spilled accumulator costs little once for each block of 32, and half the speed inside a loop over
k: attention of few queries ran at 12.6 GB/s with one and at 19.9 without. So the loops whose tiles
just fit sixteen registers may have no vector access to the stack at all; the others have a ceiling,
which is what they had when they were last looked at.

    spills.py OBJDUMP OBJECT

Exit 77 (skipped) when the object isn't gcc's: another compiler's ceilings would be others.
"""
import re
import subprocess
import sys

CEILINGS = {
    'strip_scores_f32': 0,
    'strip_scores_f16': 0,
    'strip_values_f32': 0,
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
FUNCTION = re.compile(r'^[0-9a-f]+ <([^>]+)>:')
STACK = re.compile(r'%ymm.*\(%r[sb]p\)|\(%r[sb]p\).*%ymm')


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def accesses(objdump, path):
    """Vector accesses to the stack, by function (a part that gcc split off counts with its own)."""
    text = output(objdump, '-d', '--no-show-raw-insn', path)
    counts, name = {}, None
    for line in text.splitlines():
        head = FUNCTION.match(line)
        if head:
            name = head.group(1).split('.')[0]
            counts.setdefault(name, 0)
        elif name and STACK.search(line):
            counts[name] += 1
    return counts


def main():
    objdump, path = sys.argv[1:]
    if not objdump:
        print('skipped: no objdump here')
        return 77
    comment = output(objdump, '-s', '-j', '.comment', path)
    if 'GCC' not in ''.join(line[-16:] for line in comment.splitlines()):
        print('skipped: not compiled by gcc')
        return 77
    counts = accesses(objdump, path)
    wrong = 0
    for name, ceiling in CEILINGS.items():
        n = counts.get(name)
        if n is None:
            print(f'{name}: not in the object')
            wrong += 1
        elif n > ceiling:
            print(f'{name}: {n} vector accesses to the stack, at most {ceiling}')
            wrong += 1
        else:
            print(f'{name}: {n}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
