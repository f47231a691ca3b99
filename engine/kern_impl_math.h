/* Element-wise kernels: exp, norm, quantisation, SiLU, rotation. Part of kern_impl.h. */

/* Zero-padded partial vectors: a tail is the same operation with zeros, never a scalar loop. */
V_FN v16f v_load_n(const float *p, int n)
{
    if (n >= 16)
        return v_load(p);
    float t[16] = {0};
    memcpy(t, p, (size_t)n * sizeof *p);
    return v_load(t);
}

V_FN void v_store_n(float *p, v16f x, int n)
{
    if (n >= 16) {
        v_store(p, x);
        return;
    }
    float t[16];
    v_store(t, x);
    memcpy(p, t, (size_t)n * sizeof *p);
}

/* 1.5 · 2^23: adding it leaves the nearest even integer in the low bits of a float of magnitude
 * below 2^22. */
#define ROUND_MAGIC 0x1.8p23f

/*
 * exp(x) for x ≤ 88 (more is taken as 88); 0 exactly below −87; 1 exactly at 0. x = n ln 2 + r in
 * two steps (Cody and Waite), then a polynomial of degree 6 that was fitted on Chebyshev nodes of
 * |r| ≤ 0.3466 (relative error 1e-8 before rounding), times 2^n through the exponent's bits.
 */
V_FN v16f v_exp(v16f x0)
{
    const v16f magic = v_set1(ROUND_MAGIC);
    v16f x = v_min(v_set1(88), x0); /* in this order a NaN stays a NaN */
    v16f t = v_fma(x, v_set1(0x1.715476p+0f), magic);
    v16f n = v_sub(t, magic);
    v16f r = v_fnma(n, v_set1(0x1.62ep-1f), x);       /* ln 2: 11 bits, so that n times it is
                                                       * exact */
    r = v_fnma(n, v_set1(0x1.0bfbe8p-15f), r);        /* and the rest */
    v16f p = v_fma(v_set1(0x1.6d1106p-10f), r, v_set1(0x1.120b6cp-7f));
    p = v_fma(p, r, v_set1(0x1.55551ap-5f));
    p = v_fma(p, r, v_set1(0x1.5554dcp-3f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p, r, v_set1(1));
    p = v_fma(p, r, v_set1(1));
    v16i e = vi_sub(v_bits(t), vi_set1(0x4b400000 - 127)); /* n + 127 */
    return v_zero_below(x0, -87, v_mul(p, v_as_float(vi_shl(e, 23))));
}

static void exp_all(const float *x, int n, float *y)
{
    for (int i = 0; i < n; i += 16)
        v_store(y + i, v_exp(v_load(x + i)));
}

static void rms_norm(const float *x, const float *w, int n, float eps, float *y)
{
    v16f s = v_zero();
    for (int i = 0; i < n; i += 16) {
        v16f v = v_load_n(x + i, n - i);
        s = v_fma(v, v, s);
    }
    const v16f mean = v_set1(v_sum(s) / (float)n + eps);
    const v16f scale = v_div(v_set1(1), v_sqrt(mean));
    for (int i = 0; i < n; i += 16)
        v_store_n(y + i, v_mul(v_mul(v_load_n(x + i, n - i), scale), v_load_n(w + i, n - i)),
                  n - i);
}

static void quantize(const float *x, int n_blocks, int8_t *q, struct act_block *b)
{
    const v16f magic = v_set1(ROUND_MAGIC);
    for (int i = 0; i < n_blocks; i++, x += 32, q += 32) {
        v16f v0 = v_load(x), v1 = v_load(x + 16);
        float amax = v_hmax(v_max(v_abs(v0), v_abs(v1)));
        /* So small that 127 / amax would overflow: nothing of it reaches an output. */
        float inverse = amax < 1e-30f ? 0 : 127.0f / amax;
        v16f s = v_set1(inverse);
        v16i i0 = vi_sub(v_bits(v_add(v_mul(v0, s), magic)), vi_set1(0x4b400000));
        v16i i1 = vi_sub(v_bits(v_add(v_mul(v1, s), magic)), vi_set1(0x4b400000));
        vi_store_s8(q, i0);
        vi_store_s8(q + 16, i1);
        int32_t first = vi_sum(i0), sum = first + vi_sum(i1);
        float d = amax < 1e-30f ? 0 : amax / 127.0f;
        b[i] = (struct act_block){.d = d, .ds = d * (float)sum, .sum = sum, .first = first};
    }
}

static void silu_mul(const float *gate, const float *up, int n, float *y)
{
    const v16f one = v_set1(1);
    for (int i = 0; i < n; i += 16) {
        v16f g = v_load(gate + i);
        v16f s = v_div(g, v_add(one, v_exp(v_sub(v_zero(), g))));
        v_store(y + i, v_mul(s, v_load(up + i)));
    }
}

/* gelu(x) = x / (1 + exp(−2 u)), u = √(2/π) (x + 0.044715 x³): x · (1 + tanh u) / 2 in other
 * words. */
static void gelu_mul(const float *gate, const float *up, int n, float *y)
{
    const v16f one = v_set1(1), a = v_set1(-0x1.988454p+0f); /* −2 √(2/π) */
    for (int i = 0; i < n; i += 16) {
        v16f g = v_load(gate + i);
        v16f u = v_mul(g, v_fma(v_mul(v_set1(0.044715f), g), g, one));
        v16f s = v_div(g, v_add(one, v_exp(v_mul(a, u))));
        v_store(y + i, v_mul(s, v_load(up + i)));
    }
}

/* tanh(t) = (1 − E) / (1 + E), E = exp(−2 t), which is taken as exp(88) at most. */
V_FN v16f v_soft_cap(v16f x, v16f cap, v16f minus_two_by_cap)
{
    v16f e = v_exp(v_mul(x, minus_two_by_cap));
    return v_mul(cap, v_div(v_sub(v_set1(1), e), v_add(v_set1(1), e)));
}

static void soft_cap(float *x, int n, float cap)
{
    for (int i = 0; i < n; i += 16)
        v_store(x + i, v_soft_cap(v_load(x + i), v_set1(cap), v_set1(-2 / cap)));
}

static void rope(float *x, const float *cs, int n, float scale)
{
    const v16f by = v_set1(scale);
    for (int i = 0; i < n; i += 16) {
        v16f v = v_load_n(x + i, n - i), t = v_load_n(cs + i, n - i);
        /* even: x0 c − x1 s, odd: x1 c + x0 s */
        v16f r = v_fma(v, v_dup_even(t), v_mul(v_swap_pairs(v), v_negate_even(v_dup_odd(t))));
        v_store_n(x + i, v_mul(r, by), n - i);
    }
}

static void add(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i += 16)
        v_store_n(y + i, v_add(v_load_n(y + i, n - i), v_load_n(x + i, n - i)), n - i);
}

static void to_f16(const float *x, int n, uint16_t *y)
{
    for (int i = 0; i < n; i += 16)
        v_to_f16(y + i, v_load(x + i));
}
