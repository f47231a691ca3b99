/*
 * The kernels' source, compiled once for each vector header. The including file has defined
 * KERN_TABLE (the name of the table) and KERN_NAME (the isa), and included its vec_*.h; with
 * KERN_AMX products of many rows go by its tiles. See kernels.h for the rules that keep the bits
 * equal.
 */
#include "engine/kernels.h"

#include "engine/kern_impl_math.h"
#include "engine/kern_impl_gemm.h"
#ifdef KERN_AMX
#include "engine/kern_amx_gemm.h"
#define KERN_INT(name) amx_##name
#else
#define KERN_INT(name) gemm_##name
#endif
#include "engine/kern_impl_float.h"
#include "engine/kern_impl_attn.h"
#include "engine/kern_impl_attn_q8.h"

const struct kernels KERN_TABLE = {
    .name = KERN_NAME,
    .gemm = {
        [MAT_U4_D] = KERN_INT(u4_d),
        [MAT_U4_DM] = KERN_INT(u4_dm),
        [MAT_U4_K] = KERN_INT(u4_k),
        [MAT_NL_D] = KERN_INT(nl_d),
        [MAT_U5_D] = KERN_INT(u5_d),
        [MAT_U5_DM] = KERN_INT(u5_dm),
        [MAT_U5_K] = KERN_INT(u5_k),
        [MAT_S8_D] = KERN_INT(s8_d),
        [MAT_U6_K16] = KERN_INT(u6_k16),
        [MAT_U3_K16] = KERN_INT(u3_k16),
        [MAT_U2_K16] = KERN_INT(u2_k16),
        [MAT_F32] = gemm_f32,
        [MAT_F16] = gemm_f16,
        [MAT_BF16] = gemm_bf16,
    },
    .rms_norm = rms_norm,
    .quantize = quantize,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .soft_cap = soft_cap,
    .rope = rope,
    .add = add,
    .to_f16 = to_f16,
    .exp = exp_all,
    .quantize_q = quantize_q,
    .attn_span = {[KV_F16] = attn_span_f16, [KV_Q8_0] = attn_span_q8},
    .attn_merge = attn_merge,
    .attn_finish = attn_finish,
};
