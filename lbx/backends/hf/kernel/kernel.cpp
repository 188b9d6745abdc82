// Functions that lbx.backends.hf.kernel calls. .ci/build_kernel.py compiles them once for each instruction set.
#include "decoder.h"

namespace {

constexpr int64_t LEAST_WORK = 1 << 22;  // products of two numbers; waking another thread costs as much time

struct AttentionArguments {
    const void *queries, *keys, *values;
    void *outputs;
    float *sums;
    Strides query, key, value, output;
    Layout layout;
    Shape shape;
    int64_t tokens, threads;
};

template <typename Number> bool attend(const AttentionArguments &given) {
    const States<Number> states{static_cast<const Number *>(given.queries), static_cast<const Number *>(given.keys),
                                static_cast<const Number *>(given.values), static_cast<Number *>(given.outputs),
                                given.sums, given.query, given.key, given.value, given.output, given.tokens};
    Attention<Number> attention;
    if (!attention.plan(given.layout.parts, given.layout.count, given.shape, given.threads)) return false;
    int64_t work = 0;
    for (const Part *part = given.layout.parts; part < given.layout.parts + given.layout.count; part++)
        work += given.shape.heads * part->tokens * part->columns * (given.shape.size + given.shape.value_size);
    const int threads = work > LEAST_WORK ? int(given.threads) : 1;
    const ThreadMemory memory(attention.memory_words(), threads);
    if (!memory.is_there()) return false;
#pragma omp parallel num_threads(threads) if (threads > 1)
    attention.run(states, memory.begin());
    return true;
}

}  // namespace

extern "C" {
int panel_outputs = PANEL, bfloat16_step = Format<uint16_t>::STEP;  // numbers in an operand

// All of these return 0, or 1 without memory.
int attend_float32(const AttentionArguments *given) { return !attend<float>(*given); }
int attend_bfloat16(const AttentionArguments *given) { return !attend<uint16_t>(*given); }
int pack_weight(const PackArguments *given) { return pack(*given), 0; }
int multiply_float32(const LinearArguments *given) { return run_linear<float>(*given), 0; }
int multiply_bfloat16(const LinearArguments *given) { return run_linear<uint16_t>(*given), 0; }
int decode_float32(const DecoderArguments *given) { return !Decoder<float>(*given).run(); }
int decode_bfloat16(const DecoderArguments *given) { return !Decoder<uint16_t>(*given).run(); }
}
