/*
 * See embed_math.h.
 *
 * exp for x <= 0 as 2^k × e^r with |r| <= ln 2 / 2 and a polynomial of degree 6 (the series'; its
 * error is below 2e-7). erf by Abramowitz and Stegun, 7.1.26 (|error| <= 1.5e-7). No branches and
 * no calls, so that these loops become vectors.
 */
#include "engine/embed_math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/f16.h"

/* e^x for x <= 0; 0 below -87. */
static inline float exp_negative(float x)
{
    const float low = x < -87.0f ? -87.0f : x;
    const int k = (int)(low * 1.44269504f - 0.5f); /* towards zero: to the nearest */
    const float r = (low - (float)k * 0.693359375f) + (float)k * 2.12194440e-4f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const float scale = f32_of_bits((uint32_t)(k + 127) << 23);
    return x < -87.0f ? 0.0f : p * scale;
}

void embed_add_bias(float *restrict x, size_t n_rows, size_t n, const float *restrict b)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = 0; i < n; i++)
            x[r * n + i] += b[i];
}

void embed_gelu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float v = x[i];
        float a = (v < 0 ? -v : v) * 0.70710678f;
        a = a > 9.0f ? 9.0f : a; /* erf is 1 there */
        const float t = 1.0f / (1.0f + 0.3275911f * a);
        float p = 1.061405429f;
        p = p * t - 1.453152027f;
        p = p * t + 1.421413741f;
        p = p * t - 0.284496736f;
        p = p * t + 0.254829592f;
        const float tail = p * t * exp_negative(-a * a); /* 1 - erf(a) */
        x[i] = 0.5f * v * (v < 0 ? tail : 2.0f - tail);
    }
}

void embed_softmax(float *x, size_t n)
{
    float max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++)
        x[i] = exp_negative(x[i] - max);
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    const float scale = 1.0f / sum;
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* Sums in eight lanes, so that the loop needs no reordering to be a vector's. */
static float sum_of(const float *x, size_t n, float mean, float *ret_squares)
{
    float s[8] = {0}, q[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            const float d = x[i + k] - mean;
            s[k] += d;
            q[k] += d * d;
        }
    }
    for (; i < n; i++) {
        s[0] += x[i] - mean;
        q[0] += (x[i] - mean) * (x[i] - mean);
    }
    *ret_squares = ((q[0] + q[4]) + (q[1] + q[5])) + ((q[2] + q[6]) + (q[3] + q[7]));
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

void embed_layer_norm(struct embed_rows r, const float *w, const float *b, float eps)
{
    for (size_t row = 0; row < r.n_rows; row++) {
        float *x = r.x + row * r.n;
        float squares;
        for (size_t i = 0; r.add && i < r.n; i++)
            x[i] += r.add[row * r.n + i];
        const float mean = sum_of(x, r.n, 0, &squares) / (float)r.n;
        sum_of(x, r.n, mean, &squares);
        const float scale = 1.0f / sqrtf(squares / (float)r.n + eps);
        for (size_t i = 0; i < r.n; i++)
            x[i] = (x[i] - mean) * scale * w[i] + b[i];
    }
}
