// Products of rows with the weights of linear layers, on a CPU.
//
// Weights are stored in panels: PANEL outputs side by side, input by input, as operands, so that a panel is read once
// from memory, in order. A sum is added up over the inputs in their order, whatever the other rows are: an output does
// not depend on the batch.
#pragma once
#include "vectors.h"

namespace {

constexpr int DEPTH = 384, FEWEST_ROWS = 12, MOST_ROWS = 96;  // inputs and rows that stay in a core's cache

struct Weights {
    const void *panels;  // [ceil(outputs / PANEL)][inputs / STEP][PANEL] operands
    const void *bias;    // [outputs], or null
    int64_t inputs, outputs;

    int64_t panel_count() const { return (outputs + PANEL - 1) / PANEL; }
    int columns(int64_t panel) const { return int(outputs - panel * PANEL < PANEL ? outputs - panel * PANEL : PANEL); }
};

template <int STEP>
void multiply_rows(const Operand *rows, int count, int stride, const Operand *panel, int length, float *sums,
                   bool add) {
    int row = 0;
    for (; row + TILE <= count; row += TILE) {
        const Operand *tile = rows + int64_t(row) * stride;
        if (add)
            multiply<TILE, STEP, true>(tile, stride, panel, PANEL, length, sums + row * PANEL, PANEL);
        else
            multiply<TILE, STEP, false>(tile, stride, panel, PANEL, length, sums + row * PANEL, PANEL);
    }
    const Operand *tile = rows + int64_t(row) * stride;
    float *to = sums + row * PANEL;
#define REMAINING(COUNT)                                                                            \
    case COUNT:                                                                                     \
        if (add) return multiply<COUNT, STEP, true>(tile, stride, panel, PANEL, length, to, PANEL); \
        return multiply<COUNT, STEP, false>(tile, stride, panel, PANEL, length, to, PANEL);
    switch (count - row) {
        REMAINING(1)
        REMAINING(2)
        REMAINING(3)
        REMAINING(4)
        REMAINING(5)
    }
#undef REMAINING
}

// Sums of some rows with one panel, [count][PANEL].
template <typename Number>
void multiply_panel(const Weights &weights, int64_t panel, const Number *rows, int count, float *sums) {
    constexpr int STEP = Format<Number>::STEP;
    const int stride = int(weights.inputs / STEP);
    const Operand *left = reinterpret_cast<const Operand *>(rows);
    const Operand *right = static_cast<const Operand *>(weights.panels) + panel * stride * PANEL;
    for (int start = 0; start < stride; start += DEPTH) {
        const int length = stride - start < DEPTH ? stride - start : DEPTH;
        multiply_rows<STEP>(left + start, count, stride, right + int64_t(start) * PANEL, length, sums, start > 0);
    }
}

// Rows of a task: few enough that every thread has some tasks, many enough that a panel is used often.
inline int rows_of_task(int64_t rows, int64_t panels, int64_t threads) {
    const int64_t wanted = rows * panels / (4 * threads) / TILE * TILE;
    return int(wanted < FEWEST_ROWS ? FEWEST_ROWS : wanted > MOST_ROWS ? MOST_ROWS : wanted);
}

template <typename Number> void add_bias(const Weights &weights, int64_t panel, float *sums, int count) {
    if (!weights.bias) return;
    const Number *bias = static_cast<const Number *>(weights.bias) + panel * PANEL;
    for (int row = 0; row < count; row++)
        for (int at = 0; at < weights.columns(panel); at++) sums[row * PANEL + at] += to_float(bias[at]);
}

// Write a panel's sums to some rows of outputs.
template <typename Number>
void write_panel(const Weights &weights, int64_t panel, const float *sums, int count, Number *outputs) {
    for (int row = 0; row < count; row++)
        for (int at = 0; at < weights.columns(panel); at++)
            from_float(sums[row * PANEL + at], outputs[row * weights.outputs + panel * PANEL + at]);
}

struct PackArguments {
    const Operand *weight;  // [outputs][length]
    Operand *panels;
    int64_t outputs, length, threads;  // length: operands of an output
};

inline void pack(const PackArguments &given) {
    constexpr int64_t DEEP = 16;  // operands in a cache line
#pragma omp parallel for num_threads(int(given.threads)) if (given.threads > 1)
    for (int64_t first = 0; first < given.outputs; first += PANEL) {
        Operand *to = given.panels + first * given.length;
        for (int64_t start = 0; start < given.length; start += DEEP) {
            const int64_t end = start + DEEP < given.length ? start + DEEP : given.length;
            for (int64_t column = 0; column < PANEL; column++) {
                const Operand *from = given.weight + (first + column) * given.length;
                const bool is_padding = first + column >= given.outputs;
                for (int64_t at = start; at < end; at++) to[at * PANEL + column] = is_padding ? 0 : from[at];
            }
        }
    }
}

struct LinearArguments {
    Weights weights;
    const void *rows;
    void *outputs;
    int64_t count, threads;
};

template <typename Number> void run_linear(const LinearArguments &given) {
    const Weights &weights = given.weights;
    const int64_t panels = weights.panel_count();
    const int chunk = rows_of_task(given.count, panels, given.threads);
    const int64_t chunks = (given.count + chunk - 1) / chunk;
#pragma omp parallel for schedule(dynamic) num_threads(int(given.threads)) if (given.threads > 1 && panels * chunks > 1)
    for (int64_t task = 0; task < panels * chunks; task++) {
        alignas(64) float sums[MOST_ROWS * PANEL];
        const int64_t panel = task / chunks, first = task % chunks * chunk;
        const int count = int(given.count - first < chunk ? given.count - first : chunk);
        multiply_panel(weights, panel, static_cast<const Number *>(given.rows) + first * weights.inputs, count, sums);
        add_bias<Number>(weights, panel, sums, count);
        write_panel(weights, panel, sums, count, static_cast<Number *>(given.outputs) + first * weights.outputs);
    }
}

}  // namespace
