/* Computation between calls, as `ringo bench collective --gap --skew` has it: what a call costs is the time from when
 * the last rank comes to it until the last one leaves it. All ranks run on one host, which has one clock. */
#ifndef ARRIVALS_H
#define ARRIVALS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static double gap_us, skew_us; /* all ranks compute for gap_us before each call, and for up to skew_us longer */
static double steps_per_us;
static uint64_t draws, spun;

/* now_us is the time of the host's clock. */
static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* spin makes so many multiplications, each of the one before. */
static void spin(long steps) {
  uint64_t x = spun;
  for (; steps > 0; steps--) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    __asm__ volatile("" : "+r"(x));
  }
  spun = x;
}

/* prepare_compute finds how fast spin is when nothing else takes the core. */
static void prepare_compute(int rank) {
  enum { STEPS = 20000, TRIES = 50 };
  double best = INFINITY;
  for (int i = 0; i < TRIES; i++) {
    double t = now_us();
    spin(STEPS);
    t = now_us() - t;
    if (t < best) best = t;
  }
  steps_per_us = STEPS / best;
  draws = 0x9e3779b97f4a7c15u * (rank + 1);
}

/* compute takes as much of the processor's time as the next gap says. */
static void compute(void) {
  draws = draws * 6364136223846793005u + 1442695040888963407u;
  spin((long)(steps_per_us * (gap_us + skew_us * (double)(draws >> 40) / (1 << 24))));
}

#endif
