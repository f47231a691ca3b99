/*
 * Integer products on AVX-512 with VNNI. Part of vec_avx512.h; what the functions compute stands in
 * vec_c_dot.h and, for keys and values, in vec_avx2.h.
 *
 * dpbusd adds four products of unsigned weights and signed activations to each 32-bit lane, without
 * saturation. Signed weights are made unsigned by adding 128, which the caller takes back with the
 * activations' sum (V_S8_BIAS).
 */
#ifndef HEARTH_ENGINE_VEC_AVX512_DOT_H
#define HEARTH_ENGINE_VEC_AVX512_DOT_H

/* Tiles of so many rows have their accumulators in registers. */
#define V_KEPT_ROWS 4
/* v_dot of QUANTS_8 and QUANTS_NL is of w + this. */
#define V_S8_BIAS 128

struct sums {
    v16i s0, s1, s2, s3;
};

V_FN v16i vz_bytes(const void *p) { return _mm512_loadu_si512(p); }
V_FN v16i vz_dup4(const void *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return vi_set1(x);
}
V_FN v16i vz_zero(void) { return vi_set1(0); }

/* Bits `from`, n of them, of each byte of x, to bits `to`. Shifts are of 16 bits: what comes over
 * from the neighbour is masked away. The numbers are literals: the shifts are immediate. */
#define VZ_FIELD(x, from, to, n)                                                                   \
    _mm512_and_si512((from) >= (to)                                                                \
                         ? _mm512_srli_epi16(x, (from) >= (to) ? (from) - (to) : 0)                \
                         : _mm512_slli_epi16(x, (from) >= (to) ? 0 : (to) - (from)),               \
                     vi_set1(0x01010101 * (((1 << (n)) - 1) << (to))))

/* Vector j of the quants, unsigned. */
#define VZ_TWO(w, j, to) VZ_FIELD(vz_bytes((w) + 64 * ((j) / 4)), 2 * ((j) % 4), to, 2)
#define VZ_ONE(w, j, to) VZ_FIELD(vz_bytes(w), j, to, 1)
#define VZ_FOUR(w, j) VZ_FIELD(vz_bytes((w) + 64 * ((j) / 2)), 4 * ((j) % 2), 0, 4)
#define VZ_QUANTS(w, kind, j)                                                                      \
    ((kind) == QUANTS_2   ? VZ_TWO(w, j, 0)                                                        \
     : (kind) == QUANTS_3 ? _mm512_or_si512(VZ_TWO(w, j, 0), VZ_ONE((w) + 128, j, 2))              \
     : (kind) == QUANTS_5 ? _mm512_or_si512(VZ_FOUR(w, j), VZ_ONE((w) + 256, j, 4))                \
     : (kind) == QUANTS_6 ? _mm512_or_si512(VZ_FOUR(w, j), VZ_TWO((w) + 256, j, 4))                \
     : (kind) == QUANTS_8 ? _mm512_xor_si512(vz_bytes((w) + 64 * (j)), vi_set1((int)0x80808080))   \
     : (kind) == QUANTS_NL ? _mm512_shuffle_epi8(table, VZ_FOUR(w, j))                             \
                           : VZ_FOUR(w, j))

/* s_r += the products of vector j */
#define VZ_STEP(j, s)                                                                              \
    do {                                                                                           \
        const v16i q = VZ_QUANTS(w, kind, j);                                                      \
        (s)->s0 = _mm512_dpbusd_epi32((s)->s0, q, vz_dup4(x + 4 * (j)));                           \
        if (rows > 1)                                                                              \
            (s)->s1 = _mm512_dpbusd_epi32((s)->s1, q, vz_dup4(x + ldx + 4 * (j)));                 \
        if (rows > 2)                                                                              \
            (s)->s2 = _mm512_dpbusd_epi32((s)->s2, q, vz_dup4(x + 2 * ldx + 4 * (j)));             \
        if (rows > 3)                                                                              \
            (s)->s3 = _mm512_dpbusd_epi32((s)->s3, q, vz_dup4(x + 3 * ldx + 4 * (j)));             \
    } while (0)

/* IQ4_NL's values + 128. */
V_FN v16i vz_table(void)
{
    const __m128i values = _mm_loadu_si128((const __m128i *)(const void *)quants_nl);
    return _mm512_xor_si512(_mm512_broadcast_i32x4(values), vi_set1((int)0x80808080));
}

V_FN void v_dot(const uint8_t *w, const int kind, const int8_t *x, size_t ldx, const int rows,
                struct sums *s)
{
    const v16i table = vz_table();
    s->s0 = s->s1 = s->s2 = s->s3 = vz_zero();
    VZ_STEP(0, s);
    VZ_STEP(1, s);
    VZ_STEP(2, s);
    VZ_STEP(3, s);
    VZ_STEP(4, s);
    VZ_STEP(5, s);
    VZ_STEP(6, s);
    VZ_STEP(7, s);
}

/* 16 bits, two of each column. */
typedef v16i v_pairs;

V_FN v16i vz_pairs(const uint8_t *scales, const int kind)
{
    return kind == QUANTS_2 ? _mm512_cvtepu8_epi16(vz_half(scales))
                            : _mm512_cvtepi8_epi16(vz_half(scales));
}

/* The scales of the first and of the other 16 k, one of each column. */
V_FN void vz_halves(const uint8_t *scales, const int kind, v16i *low, v16i *high)
{
    v16i p = vz_pairs(scales, kind);
    if (kind == QUANTS_2)
        p = _mm512_and_si512(p, vi_set1(0x000f000f));
    *low = _mm512_srai_epi32(_mm512_slli_epi32(p, 16), 16);
    *high = _mm512_srai_epi32(p, 16);
}

V_FN void v_dot_scaled(const uint8_t *w, const int kind, const uint8_t *scales, const int8_t *x,
                       size_t ldx, const int rows, struct sums *s)
{
    const v16i table = vz_zero(); /* of no kind that has scales of 16 */
    v16i low, high;
    struct sums h;
    vz_halves(scales, kind, &low, &high);
    s->s0 = s->s1 = s->s2 = s->s3 = h.s0 = h.s1 = h.s2 = h.s3 = vz_zero();
    VZ_STEP(0, s);
    VZ_STEP(1, s);
    VZ_STEP(2, s);
    VZ_STEP(3, s);
    VZ_STEP(4, &h);
    VZ_STEP(5, &h);
    VZ_STEP(6, &h);
    VZ_STEP(7, &h);
    s->s0 = vi_add(vi_mul(s->s0, low), vi_mul(h.s0, high));
    if (rows > 1)
        s->s1 = vi_add(vi_mul(s->s1, low), vi_mul(h.s1, high));
    if (rows > 2)
        s->s2 = vi_add(vi_mul(s->s2, low), vi_mul(h.s2, high));
    if (rows > 3)
        s->s3 = vi_add(vi_mul(s->s3, low), vi_mul(h.s3, high));
}

V_FN v_pairs v_scale_pairs(const uint8_t *scales, const int kind)
{
    const v16i p = vz_pairs(scales, kind);
    return kind == QUANTS_2 ? _mm512_srli_epi16(p, 4) : p;
}

V_FN v16i v_pair_dot(v_pairs p, int32_t first, int32_t second)
{
    const uint32_t both = ((uint32_t)first & 0xffff) | (uint32_t)second << 16;
    return _mm512_madd_epi16(p, vi_set1((int32_t)both));
}

/* ---- Q8_0 keys and values ---- */

/* Rounds to nearest even; within ±32767. */
V_FN void v_to_s16(int16_t *p, v16f x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}

/* The even and the odd bytes, each pair's, as 16 bits. */
V_FN v16i vz_even(v16i x) { return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8); }
V_FN v16i vz_odd(v16i x) { return _mm512_srai_epi16(x, 8); }

V_FN void v_open_k(const int8_t *k, int16_t *ret, size_t step)
{
    const v16i w = vz_bytes(k);
    _mm512_storeu_si512(ret, vz_even(w));
    _mm512_storeu_si512(ret + step, vz_odd(w));
}

V_FN v16i vz_two(const int8_t *v0, const int8_t *v1)
{
    return _mm512_or_si512(_mm512_and_si512(vi_load_s8(v0), vi_set1(0xffff)),
                           _mm512_slli_epi32(vi_load_s8(v1), 16));
}

V_FN void v_open_v(const int8_t *v0, const int8_t *v1, int16_t *ret)
{
    _mm512_storeu_si512(ret, vz_two(v0, v1));
}

/* s_r += pairs w times the pair of each row at x */
#define VZ_PAIR(w, x)                                                                              \
    do {                                                                                           \
        a0 = _mm512_dpwssd_epi32(a0, w, vz_dup4(x));                                               \
        if (rows > 1)                                                                              \
            a1 = _mm512_dpwssd_epi32(a1, w, vz_dup4((x) + ldx));                                   \
        if (rows > 2)                                                                              \
            a2 = _mm512_dpwssd_epi32(a2, w, vz_dup4((x) + 2 * ldx));                               \
    } while (0)
#define VZ_SUMS()                                                                                  \
    do {                                                                                           \
        *s0 = a0;                                                                                  \
        *s1 = a1;                                                                                  \
        *s2 = a2;                                                                                  \
    } while (0)

V_FN void v_dot_s16(const int16_t *w, size_t step, const int16_t *x, size_t ldx, int n,
                    const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    v16i a0 = vz_zero(), a1 = a0, a2 = a0;
    for (int j = 0; j < n; j++, w += step) {
        const v16i v = vz_bytes(w);
        VZ_PAIR(v, x + 2 * j);
    }
    VZ_SUMS();
}

V_FN void v_dot_k(const int8_t *k, const int8_t *ahead, const int16_t *x, size_t ldx, int n,
                  const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    v16i a0 = vz_zero(), a1 = a0, a2 = a0;
    for (int j = 0; j < n; j++) {
        const v16i w = vz_bytes(k + 128 * j), even = vz_even(w), odd = vz_odd(w);
        v_prefetch(ahead + 128 * j);
        VZ_PAIR(even, x + 4 * j);
        VZ_PAIR(odd, x + 4 * j + 2);
    }
    VZ_SUMS();
}

V_FN void v_dot_v(const int8_t *v, const int8_t *ahead, size_t dim, const int16_t *x, size_t ldx,
                  const int rows, v16i *s0, v16i *s1, v16i *s2)
{
    v16i a0 = vz_zero(), a1 = a0, a2 = a0;
    for (int j = 0; j < 32; j += 2, v += 2 * dim, ahead += 2 * dim) {
        const v16i w = vz_two(v, v + dim);
        v_prefetch(ahead);
        v_prefetch(ahead + dim);
        VZ_PAIR(w, x + j);
    }
    VZ_SUMS();
}

#endif
