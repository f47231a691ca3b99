/*
 * Integer block products in plain C: the definition. Part of vec_c.h. The quants' planes are drawn
 * in quants.h.
 *
 *   v_dot         s_r = Σ over 32 k of w · x_r, exact, for up to four rows of x, ldx bytes apart
 *   v_dot_scaled  s_r = scale[0] · Σ over the first 16 k + scale[1] · Σ over the other 16, exact.
 *                 scales: bytes [column][2]; with QUANTS_2 their low halves, else signed
 *   v_scale_pairs, v_pair_dot
 *                 first · p[0] + second · p[1], p those scales, or with QUANTS_2 the high halves:
 *                 what biases and minima multiply
 */
#ifndef HEARTH_ENGINE_VEC_C_DOT_H
#define HEARTH_ENGINE_VEC_C_DOT_H

/* Tiles of so many rows have their accumulators in registers. */
#define V_KEPT_ROWS 4
/* v_dot of QUANTS_8 and QUANTS_NL is of w + this. */
#define V_S8_BIAS 0

struct sums {
    v16i s0, s1, s2, s3;
};

/* Bits `from`, n of them, of each byte of 64, to bits `to` of q. */
static inline void vc_plane(uint8_t *q, const uint8_t *plane, int from, int to, int n)
{
    for (int i = 0; i < 64; i++)
        q[i] = (uint8_t)(q[i] | (plane[i] >> from & ((1 << n) - 1)) << to);
}

/* Vector j of the quants, unsigned or signed as they are. */
V_FN void vc_quants(const uint8_t *w, int kind, int j, uint8_t *q)
{
    memset(q, 0, 64);
    if (kind == QUANTS_8)
        memcpy(q, w + 64 * j, 64);
    else if (kind == QUANTS_2 || kind == QUANTS_3)
        vc_plane(q, w + 64 * (j / 4), 2 * (j % 4), 0, 2);
    else
        vc_plane(q, w + 64 * (j / 2), 4 * (j % 2), 0, 4);
    if (kind == QUANTS_3)
        vc_plane(q, w + 128, j, 2, 1);
    if (kind == QUANTS_5)
        vc_plane(q, w + 256, j, 4, 1);
    if (kind == QUANTS_6)
        vc_plane(q, w + 256 + 64 * (j / 4), 2 * (j % 4), 4, 2);
    for (int i = 0; i < 64 && kind == QUANTS_NL; i++)
        q[i] = (uint8_t)quants_nl[q[i]];
}

/* s += the products of vector j with one row. */
static inline __attribute__((always_inline)) void vc_mac4(v16i *s, const uint8_t *q, int is_signed,
                                                          const int8_t *x)
{
    const int32_t flip = is_signed ? 128 : 0; /* (q ^ 128) − 128 extends the sign */
    for (int c = 0; c < 16; c++) {
        int32_t sum = 0;
        for (int i = 0; i < 4; i++)
            sum += (((int32_t)q[4 * c + i] ^ flip) - flip) * x[i];
        s->v[c] += sum;
    }
}

/* Vectors j0 … j1 − 1. */
V_FN void vc_run(const uint8_t *w, int kind, int j0, int j1, const int8_t *x, size_t ldx, int rows,
                 struct sums *s)
{
    const int is_signed = kind == QUANTS_8 || kind == QUANTS_NL;
    uint8_t q[64];
    memset(s, 0, sizeof *s);
    for (int j = j0; j < j1; j++) {
        vc_quants(w, kind, j, q);
        vc_mac4(&s->s0, q, is_signed, x + 4 * j);
        if (rows > 1)
            vc_mac4(&s->s1, q, is_signed, x + ldx + 4 * j);
        if (rows > 2)
            vc_mac4(&s->s2, q, is_signed, x + 2 * ldx + 4 * j);
        if (rows > 3)
            vc_mac4(&s->s3, q, is_signed, x + 3 * ldx + 4 * j);
    }
}

V_FN void v_dot(const uint8_t *w, int kind, const int8_t *x, size_t ldx, int rows, struct sums *s)
{
    vc_run(w, kind, 0, 8, x, ldx, rows, s);
}

typedef struct {
    int16_t v[16][2];
} v_pairs;

V_FN v_pairs vc_pairs(const uint8_t *p, int kind, int high)
{
    v_pairs r;
    for (int i = 0; i < 32; i++)
        r.v[i / 2][i % 2] =
            (int16_t)(kind != QUANTS_2 ? (int8_t)p[i] : high ? p[i] >> 4 : p[i] & 15);
    return r;
}

V_FN v16i vc_join(v16i a, v16i b, const v_pairs *p)
{
    V_EACH(v16i, a.v[i] * p->v[i][0] + b.v[i] * p->v[i][1]);
}

V_FN void v_dot_scaled(const uint8_t *w, int kind, const uint8_t *scales, const int8_t *x,
                        size_t ldx, int rows, struct sums *s)
{
    const v_pairs p = vc_pairs(scales, kind, 0);
    struct sums a, b;
    vc_run(w, kind, 0, 4, x, ldx, rows, &a);
    vc_run(w, kind, 4, 8, x, ldx, rows, &b);
    s->s0 = vc_join(a.s0, b.s0, &p);
    s->s1 = vc_join(a.s1, b.s1, &p);
    s->s2 = vc_join(a.s2, b.s2, &p);
    s->s3 = vc_join(a.s3, b.s3, &p);
}

V_FN v_pairs v_scale_pairs(const uint8_t *scales, int kind)
{
    return vc_pairs(scales, kind, 1);
}

V_FN v16i v_pair_dot(v_pairs p, int32_t first, int32_t second)
{
    V_EACH(v16i, p.v[i][0] * first + p.v[i][1] * second);
}

#endif
