// The other side of the comparison: reads products to time from standard input,
// "transA transB packed m n k calls", and answers with the seconds of processor time each line took
// (packed is for builds of ours on the other side).
// Build: gcc -O2 openblas/openblas.c -lopenblas -o openblas
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static float *matrix(size_t n, float scale) {
	float *x = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
	if (!x) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	for (size_t i = 0; i < n; i++)
		x[i] = scale * (float)(i % 13);
	return x;
}

int main(void) {
	int ta, tb, packed, m, n, k, calls;
	size_t have[3] = {0, 0, 0};
	float *x[3] = {0, 0, 0};
	while (scanf("%d %d %d %d %d %d %d", &ta, &tb, &packed, &m, &n, &k, &calls) == 7) {
		size_t need[3] = {(size_t)m * k, (size_t)k * n, (size_t)m * n};
		for (int i = 0; i < 3; i++)
			if (need[i] > have[i]) {
				free(x[i]);
				x[i] = matrix(have[i] = need[i], 1e-3f);
			}
		struct timespec t0, t1;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
		for (int i = 0; i < calls; i++)
			cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
				m, n, k, 1, x[0], ta ? m : k, x[1], tb ? k : n, 0, x[2], n);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
		printf("%.9f\n", (t1.tv_sec - t0.tv_sec) + 1e-9 * (t1.tv_nsec - t0.tv_nsec));
		fflush(stdout);
	}
	return 0;
}
