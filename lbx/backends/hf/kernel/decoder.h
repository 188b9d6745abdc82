// Decoder layers of the Llama family, on a CPU: all operations of many layers in one parallel region, so that threads
// wait for each other at barriers only, and no Python runs between operations.
//
// Numbers are rounded where transformers' modules round them.
#pragma once
#include <chrono>

#include "attention.h"
#include "linear.h"

namespace {

struct Layer {
    const void *attention_norm, *mlp_norm;  // [hidden]
    const void *query_norm, *key_norm;      // [size], or null
    Weights query, key, value, output, gate, up, down;
    void *keys, *values;  // (key heads, cells, size)
    Strides key_strides, value_strides;
    int64_t layout;
    int64_t is_rotated;
    float epsilon;
};

struct Layout {
    const Part *parts;
    int64_t count;
};

struct Seconds {
    double attention, products, other;
};

struct DecoderArguments {
    void *hidden;                                                            // (tokens, hidden size), changed
    void *normalized, *queries, *new_keys, *new_values, *attended, *gated;  // memory for intermediate results
    const void *cosines, *sines;                                             // (tokens, size)
    const int64_t *cells;                                                    // of the new tokens
    const Layer *layers;
    const Layout *layouts;
    Seconds *seconds;  // to which the time of each kind of work is added, or null
    int64_t tokens, heads, key_heads, size, first_layer, layer_end, layout_count, threads;
    float scale;
};

template <typename Number> inline float rounded(float value) {
    Number number;
    from_float(value, number);
    return to_float(number);
}

// Vectors of numbers; pairs of bfloat16 are widened and rounded as single numbers are.
inline Vector load_numbers(const float *from) { return load(from); }
inline void store_numbers(float *to, Vector value) { store(to, value); }
inline Vector load_numbers(const uint16_t *from) {
    typedef uint16_t Half __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
    return Vector(__builtin_convertvector(*reinterpret_cast<const Half *>(from), IntVector) << 16);
}
inline void store_numbers(uint16_t *to, Vector value) {
    for (int lane = 0; lane < LANES; lane++) from_float(value[lane], to[lane]);
}

template <typename Number>
void normalize(const Number *row, const Number *weight, int64_t size, float epsilon, Number *to) {
    float squares = 0;
    Vector sums{};
    int64_t at = 0;
    for (; at + LANES <= size; at += LANES) {
        const Vector numbers = load_numbers(row + at);
        sums += numbers * numbers;
    }
    for (int lane = 0; lane < LANES; lane++) squares += sums[lane];
    for (int64_t rest = at; rest < size; rest++) squares += to_float(row[rest]) * to_float(row[rest]);
    const float factor = 1 / std::sqrt(squares / float(size) + epsilon);
    for (at = 0; at < size; at++)
        from_float(rounded<Number>(to_float(row[at]) * factor) * to_float(weight[at]), to[at]);
}

// Rotate one head in place.
template <typename Number> void rotate(Number *head, const Number *cosines, const Number *sines, int64_t size) {
    const int64_t half = size / 2;
    for (int64_t at = 0; at < half; at++) {
        const float low = to_float(head[at]), high = to_float(head[at + half]);
        from_float(rounded<Number>(low * to_float(cosines[at])) - rounded<Number>(high * to_float(sines[at])),
                   head[at]);
        from_float(rounded<Number>(high * to_float(cosines[at + half])) +
                       rounded<Number>(low * to_float(sines[at + half])),
                   head[at + half]);
    }
}

inline Vector silu(Vector gate) {
    const Vector power = exponential(gate < 0 ? gate : -gate);
    return gate * ((gate < 0 ? power : splat(1.f)) / (1.f + power));
}

// Clock of the first thread; every kind of work ends with a barrier.
class Lap {
    typedef std::chrono::steady_clock Clock;
    Seconds *seconds;
    Clock::time_point start;

  public:
    explicit Lap(Seconds *to) : seconds(omp_get_thread_num() ? nullptr : to) {
        if (seconds) start = Clock::now();
    }

    void add(double Seconds::*kind) {
        if (!seconds) return;
        const Clock::time_point end = Clock::now();
        seconds->*kind += std::chrono::duration<double>(end - start).count();
        start = end;
    }
};

template <typename Number> class Decoder {
    const DecoderArguments &given;
    std::unique_ptr<Attention<Number>[]> layouts;
    size_t memory_words = 0;

  public:
    explicit Decoder(const DecoderArguments &arguments) : given(arguments) {}

    // Returns false without memory; some layers may then have been computed.
    bool run() {
        layouts.reset(new (std::nothrow) Attention<Number>[given.layout_count]);
        if (!layouts) return false;
        const Shape shape{given.heads, given.key_heads, given.size, given.size, given.scale};
        for (int64_t at = 0; at < given.layout_count; at++) {
            const Layout &layout = given.layouts[at];
            if (!layouts[at].plan(layout.parts, layout.count, shape, given.threads)) return false;
            if (layouts[at].memory_words() > memory_words) memory_words = layouts[at].memory_words();
        }
        const ThreadMemory memory(memory_words, given.threads);
        if (!memory.is_there()) return false;
#pragma omp parallel num_threads(int(given.threads))
        {
            Operand *own = memory.begin();
            for (int64_t at = given.first_layer; at < given.layer_end; at++) run_layer(given.layers[at], own);
        }
        return true;
    }

  private:
    static Number *numbers(void *data) { return static_cast<Number *>(data); }
    static const Number *numbers(const void *data) { return static_cast<const Number *>(data); }

    void run_layer(const Layer &layer, Operand *memory) const {
        Lap lap(given.seconds);
        normalize_rows(layer, layer.attention_norm);
        lap.add(&Seconds::other);
        project(layer);
        lap.add(&Seconds::products);
        place(layer);
        lap.add(&Seconds::other);
        const int64_t width = given.heads * given.size;
        const States<Number> states{numbers(given.queries), numbers(layer.keys), numbers(layer.values),
                                    numbers(given.attended), nullptr, {given.size, width}, layer.key_strides,
                                    layer.value_strides, {given.size, width}, given.tokens};
        layouts[layer.layout].run(states, memory);
        lap.add(&Seconds::attention);
        add_product(layer.output, numbers(given.attended));
        lap.add(&Seconds::products);
        normalize_rows(layer, layer.mlp_norm);
        lap.add(&Seconds::other);
        gate(layer);
        add_product(layer.down, numbers(given.gated));
        lap.add(&Seconds::products);
    }

    void normalize_rows(const Layer &layer, const void *weight) const {
        const int64_t size = layer.query.inputs;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < given.tokens; row++)
            normalize(numbers(given.hidden) + row * size, numbers(weight), size, layer.epsilon,
                      numbers(given.normalized) + row * size);
    }

    void project(const Layer &layer) const {
        const Weights *weights[] = {&layer.query, &layer.key, &layer.value};
        Number *const targets[] = {numbers(given.queries), numbers(given.new_keys), numbers(given.new_values)};
        const int64_t all = layer.query.panel_count() + layer.key.panel_count() + layer.value.panel_count();
        multiply_all(all, [&](int64_t panel, int64_t first, int count) {
            int which = 0;
            while (panel >= weights[which]->panel_count()) panel -= weights[which++]->panel_count();
            alignas(64) float sums[MOST_ROWS * PANEL];
            multiply_panel(*weights[which], panel, numbers(given.normalized) + first * weights[which]->inputs, count,
                           sums);
            add_bias<Number>(*weights[which], panel, sums, count);
            write_panel(*weights[which], panel, sums, count, targets[which] + first * weights[which]->outputs);
        });
    }

    // Normalize and rotate queries and keys, and write keys and values to their cells.
    void place(const Layer &layer) const {
        const int64_t size = given.size;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < given.tokens; row++) {
            const Number *cosines = numbers(given.cosines) + row * size, *sines = numbers(given.sines) + row * size;
            for (int64_t head = 0; head < given.heads + given.key_heads; head++) {
                const bool is_key = head >= given.heads;
                const void *norm = is_key ? layer.key_norm : layer.query_norm;
                Number *from = is_key ? numbers(given.new_keys) + (row * given.key_heads + head - given.heads) * size
                                      : numbers(given.queries) + (row * given.heads + head) * size;
                if (norm) normalize(from, numbers(norm), size, layer.epsilon, from);
                if (layer.is_rotated) rotate(from, cosines, sines, size);
            }
            for (int64_t head = 0; head < given.key_heads; head++) {
                const int64_t from = (row * given.key_heads + head) * size, cell = given.cells[row];
                memcpy(numbers(layer.keys) + head * layer.key_strides.head + cell * layer.key_strides.token,
                       numbers(given.new_keys) + from, sizeof(Number) * size);
                memcpy(numbers(layer.values) + head * layer.value_strides.head + cell * layer.value_strides.token,
                       numbers(given.new_values) + from, sizeof(Number) * size);
            }
        }
    }

    void gate(const Layer &layer) const {
        const Weights &weights = layer.gate;
        multiply_all(weights.panel_count(), [&](int64_t panel, int64_t first, int count) {
            alignas(64) float gates[MOST_ROWS * PANEL], ups[MOST_ROWS * PANEL];
            const Number *rows = numbers(given.normalized) + first * weights.inputs;
            multiply_panel(weights, panel, rows, count, gates);
            multiply_panel(layer.up, panel, rows, count, ups);
            add_bias<Number>(weights, panel, gates, count);
            add_bias<Number>(layer.up, panel, ups, count);
            for (int at = 0; at < count * PANEL; at += LANES) {
                Number both[2][LANES];
                store_numbers(both[0], load(gates + at)), store_numbers(both[1], load(ups + at));
                store_numbers(both[0], silu(load_numbers(both[0])));
                store(gates + at, load_numbers(both[0]) * load_numbers(both[1]));
            }
            write_panel(weights, panel, gates, count, numbers(given.gated) + first * weights.outputs);
        });
    }

    void add_product(const Weights &weights, const Number *rows) const {
        multiply_all(weights.panel_count(), [&](int64_t panel, int64_t first, int count) {
            alignas(64) float sums[MOST_ROWS * PANEL];
            multiply_panel(weights, panel, rows + first * weights.inputs, count, sums);
            add_bias<Number>(weights, panel, sums, count);
            Number *to = numbers(given.hidden) + first * weights.outputs + panel * PANEL;
            for (int row = 0; row < count; row++)
                for (int at = 0; at < weights.columns(panel); at++) {
                    Number &number = to[row * weights.outputs + at];
                    from_float(to_float(number) + rounded<Number>(sums[row * PANEL + at]), number);
                }
        });
    }

    // Call `task` with each panel and each chunk of rows: (panel, first row, rows).
    template <class Task> void multiply_all(int64_t panels, const Task &task) const {
        const int chunk = rows_of_task(given.tokens, panels, given.threads);
        const int64_t chunks = (given.tokens + chunk - 1) / chunk;
#pragma omp for schedule(dynamic)
        for (int64_t number = 0; number < panels * chunks; number++) {
            const int64_t first = number % chunks * chunk, rest = given.tokens - first;
            task(number / chunks, first, int(rest < chunk ? rest : chunk));
        }
    }
};

}  // namespace
