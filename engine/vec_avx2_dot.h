/*
 * Integer block products on AVX2. Part of vec_avx2.h; what the functions compute stands in
 * vec_c_dot.h.
 *
 * Unsigned weights times signed activations: maddubs makes 16-bit sums of two products, which are
 * added while they are sure to fit, then widened (or multiplied by the scale of their 16 k) by
 * madd. Signed weights: |w| times the activation with w's sign, widened at once.
 *
 * Both halves of the columns go side by side where four rows' sums fit the registers, so that an
 * activation is loaded once for both; else one after the other.
 */
#ifndef HEARTH_ENGINE_VEC_AVX2_DOT_H
#define HEARTH_ENGINE_VEC_AVX2_DOT_H

/* Tiles of so many rows have their accumulators in registers. */
#define V_KEPT_ROWS 2
/* v_dot of signed quants is of w + this. */
#define V_S8_BIAS 0

struct sums {
    v16i s0, s1, s2, s3;
};

/* Bits `from`, n of them, of each byte to bits `to`. Shifts are of 16 bits: what comes over from
 * the neighbour is masked away. */
V_FN __m256i vx_field(__m256i x, const int from, const int to, const int n)
{
    const __m256i mask = _mm256_set1_epi8((char)(((1 << n) - 1) << to));
    if (from > to)
        x = _mm256_srli_epi16(x, from - to);
    else if (from < to)
        x = _mm256_slli_epi16(x, to - from);
    return _mm256_and_si256(x, mask);
}

/* Unsigned quants k 4j … 4j + 3 of 8 columns; w points to the first plane. */
V_FN __m256i vx_quants(const uint8_t *w, const int kind, const int j)
{
    const __m256i two = vx_bytes(w + (kind == QUANTS_6 ? 256 : 0) + 64 * (j / 4));
    if (kind == QUANTS_2)
        return vx_field(two, 2 * (j % 4), 0, 2);
    if (kind == QUANTS_3)
        return _mm256_or_si256(vx_field(two, 2 * (j % 4), 0, 2),
                               vx_field(vx_bytes(w + 128), j, 2, 1));
    const __m256i four = vx_field(vx_bytes(w + 64 * (j / 2)), 4 * (j % 2), 0, 4);
    if (kind == QUANTS_5)
        return _mm256_or_si256(four, vx_field(vx_bytes(w + 256), j, 4, 1));
    if (kind == QUANTS_6)
        return _mm256_or_si256(four, vx_field(two, 2 * (j % 4), 4, 2));
    return four;
}

/* 16-bit sums: so many additions of two products of the largest quant and 127 */
_Static_assert(4 * 2 * 3 * 127 <= INT16_MAX, "16 k of 2 bits");
_Static_assert(4 * 2 * 7 * 127 <= INT16_MAX, "16 k of 3 bits");
_Static_assert(8 * 2 * 15 * 127 <= INT16_MAX, "32 k of 4 bits");
_Static_assert(4 * 2 * 31 * 127 <= INT16_MAX, "16 k of 5 bits");
_Static_assert(2 * 2 * 63 * 127 <= INT16_MAX, "8 k of 6 bits");
_Static_assert(1 * 2 * 128 * 127 <= INT16_MAX, "4 k of signed 8 bits");

/* acc += pairs of unsigned w times signed x, in 16 bits */
#define VX_MAC(acc, w, x)                                        \
    do {                                                         \
        acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x)); \
        V_KEEP(acc);                                             \
    } while (0)

#define VX_WIDEN(s, a, by)                                     \
    do {                                                       \
        s = _mm256_add_epi32(s, _mm256_madd_epi16(a, by));     \
        V_KEEP(s);                                             \
    } while (0)

/* The products of four k of one row with q, 8 columns; x advances over the rows. */
#define VX_ROWS(MAC, a, q, xs)                           \
    do {                                                 \
        const int8_t *xr = xs;                           \
        MAC(a##0, q, vx_dup4(xr));                       \
        if (rows > 1)                                    \
            MAC(a##1, q, vx_dup4(xr + ldx));             \
        if (rows > 2)                                    \
            MAC(a##2, q, vx_dup4(xr + 2 * ldx));         \
        if (rows > 3)                                    \
            MAC(a##3, q, vx_dup4(xr + 3 * ldx));         \
    } while (0)

/* The same with q and p, both halves of the columns. */
#define VX_ROW2(MAC, a, b, q, p, xs)      \
    do {                                  \
        const __m256i x4 = vx_dup4(xs);   \
        MAC(a, q, x4);                    \
        MAC(b, p, x4);                    \
    } while (0)
#define VX_ROWS2(MAC, a, b, q, p, xs)                                  \
    do {                                                               \
        const int8_t *xr = xs;                                         \
        VX_ROW2(MAC, a##0, b##0, q, p, xr);                            \
        if (rows > 1)                                                  \
            VX_ROW2(MAC, a##1, b##1, q, p, xr + ldx);                  \
        if (rows > 2)                                                  \
            VX_ROW2(MAC, a##2, b##2, q, p, xr + 2 * ldx);              \
        if (rows > 3)                                                  \
            VX_ROW2(MAC, a##3, b##3, q, p, xr + 3 * ldx);              \
    } while (0)

/* 4 bits: all of 32 k in 16-bit sums. */
V_FN void vx_dot4(const uint8_t *w, const int8_t *x, size_t ldx, const int rows, struct sums *s)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0,
            b3 = a0;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        const __m256i q = vx_quants(w, QUANTS_4, j), p = vx_quants(w + 32, QUANTS_4, j);
        VX_ROWS2(VX_MAC, a, b, q, p, x + 4 * j);
    }
    s->s0 = (v16i){_mm256_madd_epi16(a0, ones), _mm256_madd_epi16(b0, ones)};
    s->s1 = (v16i){_mm256_madd_epi16(a1, ones), _mm256_madd_epi16(b1, ones)};
    s->s2 = (v16i){_mm256_madd_epi16(a2, ones), _mm256_madd_epi16(b2, ones)};
    s->s3 = (v16i){_mm256_madd_epi16(a3, ones), _mm256_madd_epi16(b3, ones)};
}

/* acc (32 bits) += w · x of 4 k; |w| as a##q */
#define VX_MAC8(acc, w, x)                                                                       \
    do {                                                                                         \
        acc = _mm256_add_epi32(                                                                  \
            acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a##w, _mm256_sign_epi8(x, w)), ones));   \
        V_KEEP(acc);                                                                             \
    } while (0)

V_FN __m256i vx_signed(const uint8_t *w, const int kind, const int j, __m256i table)
{
    if (kind == QUANTS_8)
        return vx_bytes(w + 64 * j);
    return _mm256_shuffle_epi8(table, vx_quants(w, QUANTS_4, j));
}

V_FN void vx_dot8(const uint8_t *w, const int kind, const int8_t *x, size_t ldx, const int rows,
                  struct sums *s)
{
    const __m256i ones = _mm256_set1_epi16(1),
                  table = _mm256_broadcastsi128_si256(
                      _mm_loadu_si128((const __m128i *)(const void *)quants_nl));
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0,
            b3 = a0;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        const __m256i q = vx_signed(w, kind, j, table), p = vx_signed(w + 32, kind, j, table),
                      aq = _mm256_abs_epi8(q), ap = _mm256_abs_epi8(p);
        VX_ROWS2(VX_MAC8, a, b, q, p, x + 4 * j);
    }
    s->s0 = (v16i){a0, b0};
    s->s1 = (v16i){a1, b1};
    s->s2 = (v16i){a2, b2};
    s->s3 = (v16i){a3, b3};
}

/* Four rows' sums of 8 columns. */
struct vx_sums {
    __m256i s0, s1, s2, s3;
};

/* s_r += `by` times the products of k 4 j0 … 4 (j0 + n) − 1 */
V_FN void vx_run(const uint8_t *w, const int kind, const int j0, const int n, const int8_t *x,
                 size_t ldx, const int rows, __m256i by, struct vx_sums *s)
{
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0;
#pragma GCC unroll 4
    for (int j = j0; j < j0 + n; j++) {
        const __m256i q = vx_quants(w, kind, j);
        VX_ROWS(VX_MAC, a, q, x + 4 * j);
    }
    VX_WIDEN(s->s0, a0, by);
    if (rows > 1)
        VX_WIDEN(s->s1, a1, by);
    if (rows > 2)
        VX_WIDEN(s->s2, a2, by);
    if (rows > 3)
        VX_WIDEN(s->s3, a3, by);
}

/* 8 columns with what multiplies each half of the k. */
V_FN struct vx_sums vx_half(const uint8_t *w, const int kind, const int8_t *x, size_t ldx,
                            const int rows, __m256i low, __m256i high)
{
    struct vx_sums s;
    s.s0 = s.s1 = s.s2 = s.s3 = _mm256_setzero_si256();
    if (kind == QUANTS_6) {
        vx_run(w, kind, 0, 2, x, ldx, rows, low, &s);
        vx_run(w, kind, 2, 2, x, ldx, rows, low, &s);
        vx_run(w, kind, 4, 2, x, ldx, rows, high, &s);
        vx_run(w, kind, 6, 2, x, ldx, rows, high, &s);
    } else {
        vx_run(w, kind, 0, 4, x, ldx, rows, low, &s);
        vx_run(w, kind, 4, 4, x, ldx, rows, high, &s);
    }
    return s;
}

/* Sums that wait while the other half is made: in memory, so that their registers are free. */
#define VX_PARK(s)                                                                         \
    do {                                                                                   \
        if (rows > 2)                                                                      \
            __asm__("" : "+m"((s).s0), "+m"((s).s1), "+m"((s).s2), "+m"((s).s3));          \
    } while (0)

/* The other half loads its activations anew: gcc would else keep all of the first's, on the
 * stack. */
#define VX_RELOAD(x) __asm__("" : "+r"(x))

V_FN void vx_join(struct vx_sums a, struct vx_sums b, struct sums *s)
{
    s->s0 = (v16i){a.s0, b.s0};
    s->s1 = (v16i){a.s1, b.s1};
    s->s2 = (v16i){a.s2, b.s2};
    s->s3 = (v16i){a.s3, b.s3};
}

V_FN void v_dot(const uint8_t *w, const int kind, const int8_t *x, size_t ldx, const int rows,
                struct sums *s)
{
    const __m256i ones = _mm256_set1_epi16(1);
    if (kind == QUANTS_4) {
        vx_dot4(w, x, ldx, rows, s);
    } else if (kind == QUANTS_8 || kind == QUANTS_NL) {
        vx_dot8(w, kind, x, ldx, rows, s);
    } else {
        struct vx_sums a = vx_half(w, kind, x, ldx, rows, ones, ones);
        VX_PARK(a);
        VX_RELOAD(x);
        vx_join(a, vx_half(w + 32, kind, x, ldx, rows, ones, ones), s);
    }
}

/* 16 bits, two of each column. */
typedef v16i v_pairs;

V_FN __m256i vx_pairs(const uint8_t *scales, const int kind)
{
    const __m128i p = _mm_loadu_si128((const __m128i *)scales);
    return kind == QUANTS_2 ? _mm256_cvtepu8_epi16(p) : _mm256_cvtepi8_epi16(p);
}

V_FN struct vx_sums vx_half_scaled(const uint8_t *w, const int kind, const uint8_t *scales,
                                   const int8_t *x, size_t ldx, const int rows)
{
    __m256i p = vx_pairs(scales, kind);
    if (kind == QUANTS_2)
        p = _mm256_and_si256(p, _mm256_set1_epi16(15));
    const __m256i low = _mm256_blend_epi16(p, _mm256_slli_epi32(p, 16), 0xaa),
                  high = _mm256_blend_epi16(_mm256_srli_epi32(p, 16), p, 0xaa);
    return vx_half(w, kind, x, ldx, rows, low, high);
}

V_FN void v_dot_scaled(const uint8_t *w, const int kind, const uint8_t *scales, const int8_t *x,
                       size_t ldx, const int rows, struct sums *s)
{
    struct vx_sums a = vx_half_scaled(w, kind, scales, x, ldx, rows);
    VX_PARK(a);
    VX_RELOAD(x);
    vx_join(a, vx_half_scaled(w + 32, kind, scales + 16, x, ldx, rows), s);
}

V_FN v_pairs v_scale_pairs(const uint8_t *scales, const int kind)
{
    const __m256i a = vx_pairs(scales, kind), b = vx_pairs(scales + 16, kind);
    if (kind == QUANTS_2)
        return (v_pairs){_mm256_srli_epi16(a, 4), _mm256_srli_epi16(b, 4)};
    return (v_pairs){a, b};
}

V_FN v16i v_pair_dot(v_pairs p, int32_t first, int32_t second)
{
    const __m256i x = _mm256_set1_epi32(
        (int32_t)(((uint32_t)first & 0xffff) | (uint32_t)second << 16));
    return (v16i){_mm256_madd_epi16(p.a, x), _mm256_madd_epi16(p.b, x)};
}

#endif
