// Times gloo's allreduce of floats over TCP; rank 0 prints one JSON line per size.
//
// usage: gloo_allreduce RANK NP STORE_DIR HOST SECONDS[:GAP:SKEW] FLOATS...   (a process per rank, STORE_DIR empty and shared)
//
// The protocol is mpi_allreduce.c's, and that of `ringo bench allreduce`.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "arrivals.h"

namespace {

constexpr int kPeriod = 5, kBatch = 100, kBatchFloats = 1024, kMost = 2000, kLeast = 5;

int rank, np;
std::shared_ptr<gloo::rendezvous::Context> context;

float operand(int r, long i, int salt) { return static_cast<float>((i + 2 * r + salt) % kPeriod + 1); }

void fill(std::vector<float>& x, int salt) {
  const long n = x.size(), head = std::min(n, kPeriod * 1024L);
  for (long i = 0; i < head; i++) x[i] = operand(rank, i % kPeriod, salt);
  for (long at = head; at < n; at += head) std::memcpy(&x[at], x.data(), std::min(head, n - at) * sizeof(float));
}

void verify(const std::vector<float>& x, int salt) {
  float want[kPeriod] = {};
  for (int i = 0; i < kPeriod; i++)
    for (int r = 0; r < np; r++) want[i] += operand(r, i, salt);
  for (size_t i = 0; i < x.size(); i++)
    if (x[i] != want[i % kPeriod]) {
      std::fprintf(stderr, "rank %d: value %zu of %zu is %g, want %g\n", rank, i, x.size(), x[i], want[i % kPeriod]);
      std::exit(1);
    }
}

void reduce(std::vector<float>& x) {
  gloo::AllreduceOptions o(context);
  o.setOutput(x.data(), x.size());
  o.setReduceFunction([](void* out, const void* a, const void* b, size_t n) { gloo::sum<float>(out, a, b, n); });
  gloo::allreduce(o);
}

void barrier() {
  gloo::BarrierOptions o(context);
  gloo::barrier(o);
}

std::vector<double> single(std::vector<float>& x, int samples) {
  std::vector<double> us;
  for (int i = 0; i < samples; i++) {
    fill(x, i & 1);
    barrier();
    const double t = now_us();
    reduce(x);
    us.push_back(now_us() - t);
    barrier();  // verifying would take the core from ranks that are not done
    verify(x, i & 1);
  }
  return us;
}

std::vector<double> batched(std::vector<float>& x, int samples) {
  std::vector<float> source[2] = {x, x};
  for (int s = 0; s < 2; s++) fill(source[s], s);
  std::vector<double> us;
  for (int i = 0; i < samples; i++) {
    barrier();
    const double t = now_us();
    for (int k = 0; k < kBatch; k++) {
      std::memcpy(x.data(), source[k & 1].data(), x.size() * sizeof(float));
      reduce(x);
    }
    us.push_back((now_us() - t) / kBatch);
    verify(x, (kBatch - 1) & 1);
  }
  return us;
}

// longest leaves the largest of each value over all ranks.
std::vector<double> longest(const std::vector<double>& own) {
  std::vector<double> all(own.size() * np), out = own;
  gloo::AllgatherOptions gather(context);
  gather.setInput(const_cast<double*>(own.data()), own.size());
  gather.setOutput(all.data(), all.size());
  gloo::allgather(gather);
  for (size_t i = 0; i < all.size(); i++) out[i % own.size()] = std::max(out[i % own.size()], all[i]);
  return out;
}

int fitting(double seconds, double us) {
  int samples = static_cast<int>(std::max<double>(kLeast, std::min<double>(kMost, seconds * 1e6 / us)));
  gloo::BroadcastOptions agree(context);
  agree.setOutput(&samples, 1);
  agree.setRoot(0);
  gloo::broadcast(agree);
  return samples;
}

// apart returns the microseconds of calls after computation, and last those from call to call.
std::vector<double> apart(std::vector<float>& x, int samples) {
  std::vector<double> times(2 * samples + 1);
  barrier();
  const double start = now_us();
  for (int i = 0; i < samples; i++) {
    fill(x, i & 1);
    compute();
    times[i] = now_us();
    reduce(x);
    times[samples + i] = now_us();
    verify(x, i & 1);
  }
  times.back() = (now_us() - start) / samples;
  times = longest(times);
  for (int i = 0; i < samples; i++) times[samples + i] -= times[i];
  times.erase(times.begin(), times.begin() + samples);
  return times;
}

void measure_apart(long n, double seconds) {
  std::vector<float> x(n);
  const int samples = fitting(seconds, apart(x, 10).back());
  auto us = apart(x, samples);
  const double loop = us.back();
  us.pop_back();
  std::sort(us.begin(), us.end());
  double sum = 0;
  for (double t : us) sum += t;
  if (rank == 0) {
    std::printf("{\"peer\":\"gloo\",\"np\":%d,\"floats\":%ld,\"median_us\":%.4f,\"min_us\":%.4f,\"iterations\":%d,"
                "\"gap_us\":%g,\"skew_us\":%g,\"mean_us\":%.4f,\"loop_us\":%.4f}\n",
                np, n, us[us.size() / 2], us[0], samples, gap_us, skew_us, sum / samples, loop);
    std::fflush(stdout);
  }
}

void measure(long n, double seconds) {
  std::vector<float> x(n);
  const bool batch = n <= kBatchFloats;
  auto run = [&](int samples) { return batch ? batched(x, samples) : single(x, samples); };
  auto warm = run(3);
  std::sort(warm.begin(), warm.end());
  const int samples = fitting(seconds, warm[1] * (batch ? kBatch : 1));
  auto us = longest(run(samples));
  std::sort(us.begin(), us.end());
  if (rank == 0) {
    std::printf("{\"peer\":\"gloo\",\"np\":%d,\"floats\":%ld,\"median_us\":%.4f,\"min_us\":%.4f,\"iterations\":%d}\n", np, n,
                us[us.size() / 2], us[0], samples);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: gloo_allreduce RANK NP STORE_DIR HOST SECONDS[:GAP:SKEW] FLOATS...\n");
    return 2;
  }
  rank = std::atoi(argv[1]);
  np = std::atoi(argv[2]);
  gloo::transport::tcp::attr attr;
  attr.hostname = argv[4];
  auto device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(argv[3]);
  context = std::make_shared<gloo::rendezvous::Context>(rank, np);
  context->connectFullMesh(store, device);
  double seconds;
  const bool calls_apart = std::sscanf(argv[5], "%lf:%lf:%lf", &seconds, &gap_us, &skew_us) == 3;
  prepare_compute(rank);
  for (int i = 6; i < argc; i++) (calls_apart ? measure_apart : measure)(std::atol(argv[i]), seconds);
  barrier();
}
