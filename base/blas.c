/* Products of float matrices. See blas.h. */
#include "base/blas.h"

#include <pthread.h>

#include <cblas.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void blas_multiply(const struct blas_product *p)
{
    pthread_mutex_lock(&lock);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, p->is_b_upright ? CblasNoTrans : CblasTrans, p->m,
                p->n, p->k, p->scale, p->a, p->a_step, p->b, p->b_step, p->is_added ? 1.0f : 0.0f,
                p->c, p->c_step);
    pthread_mutex_unlock(&lock);
}

void blas_apply(const float *a, int n_rows, int n_columns, const float *x, float *y)
{
    pthread_mutex_lock(&lock);
    cblas_sgemv(CblasRowMajor, CblasNoTrans, n_rows, n_columns, 1.0f, a, n_columns, x, 1, 0.0f, y,
                1);
    pthread_mutex_unlock(&lock);
}

void blas_widen(const int8_t *restrict from, size_t n, float *restrict to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}
