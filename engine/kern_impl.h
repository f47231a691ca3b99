/*
 * The kernels' source, compiled once for each vector header. The including file has defined
 * KERN_TABLE (the name of the table) and KERN_NAME (the isa), and included its vec_*.h. See
 * kernels.h for the rules that keep the bits equal.
 */
#include "engine/kernels.h"

#include "engine/kern_impl_math.h"
#include "engine/kern_impl_gemm.h"
#include "engine/kern_impl_float.h"
#include "engine/kern_impl_attn.h"
#include "engine/kern_impl_attn_q8.h"

const struct kernels KERN_TABLE = {
    .name = KERN_NAME,
    .gemm = {
        [MAT_U4_D] = gemm_u4_d,
        [MAT_U4_DM] = gemm_u4_dm,
        [MAT_U4_K] = gemm_u4_k,
        [MAT_NL_D] = gemm_nl_d,
        [MAT_U5_D] = gemm_u5_d,
        [MAT_U5_DM] = gemm_u5_dm,
        [MAT_U5_K] = gemm_u5_k,
        [MAT_S8_D] = gemm_s8_d,
        [MAT_U6_K16] = gemm_u6_k16,
        [MAT_U3_K16] = gemm_u3_k16,
        [MAT_U2_K16] = gemm_u2_k16,
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
