// One run of inference-lab's WASM build under the load of benchmarks/peers.py; prints a line of JSON.
//     node benchmarks/peers_inference_lab.mjs FOLDER_OF_THE_PACKAGE REQUESTS
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, requests] = process.argv.slice(2);
const lab = await import(pathToFileURL(`${folder}/inference_lab.js`).href);
lab.initSync({ module: readFileSync(`${folder}/inference_lab_bg.wasm`) });

const config = {
  hardware: {
    name: "a100-sxm-80gb", compute_flops: 312e12, memory_bandwidth: 2.039e12, memory_capacity: 80e9, kv_cache_capacity: 50e9,
    gpu_memory_utilization: 0.9, bytes_per_param: 2,
  },
  model: { name: "llama-2-7b", num_parameters: 6738415616, num_layers: 32, hidden_dim: 4096, num_heads: 32, max_seq_len: 4096 },
  scheduler: {
    max_num_batched_tokens: 8192, max_num_seqs: 256, policy: "fcfs", enable_chunked_prefill: true, long_prefill_token_threshold: 0,
    max_num_partial_prefills: 1, block_size: 16,
  },
  workload: {
    arrival_pattern: "poisson", arrival_rate: 4, num_requests: Number(requests), seed: 7,
    input_len_dist: { type: "normal", mean: 512, std_dev: 128 }, output_len_dist: { type: "normal", mean: 128, std_dev: 32 },
  },
  simulation: { log_interval: 1000000 },
};

const before = process.cpuUsage();
const found = lab.run_simulation(JSON.stringify(config));
const used = process.cpuUsage(before);
const version = JSON.parse(readFileSync(`${folder}/package.json`)).version;
const seconds = (used.user + used.system) / 1e6;
console.log(JSON.stringify({ version, requests: found.metrics.completed_requests, cpu_s: seconds, e2e_mean_ms: found.metrics.e2e_mean }));
