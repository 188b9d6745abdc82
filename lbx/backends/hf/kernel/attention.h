// Attention of new tokens over cells of a KV cache, on a CPU.
//
// Query heads that share a key head, times tokens, are rows of one matrix. A task is a chunk of these rows; it goes
// through the cells in blocks and keeps the running maximum and sum of each row. Keys of a block are transposed, so
// that both products are sums of broadcast numbers times vectors, and bfloat16 numbers are used as pairs where the
// processor multiplies pairs. Private float32 cells of a few rows are read where they are. The arithmetic of a row does
// not depend on the number of threads, and on other rows only by whether there are few of them.
#pragma once
#include "vectors.h"

namespace {

constexpr int BLOCK = 256, SMALLEST_CHUNK = 48, LARGEST_CHUNK = 240;
constexpr int FEW_ROWS = 96, MOST_SEGMENTS = 16, SMALLEST_SEGMENT = 4 * BLOCK;  // for few rows, cells are divided, too

typedef uint32_t Quad __attribute__((vector_size(16), aligned(4), may_alias));

// Scores to weights, in place; returns the factor by which earlier sums shrink.
template <int STEP> inline float to_weights(float *scores, int cells, float scale, float &top, float *total) {
    const int padded = (cells + LANES - 1) / LANES * LANES;
    for (int at = cells; at < padded; at++) scores[at] = -INFINITY;
    Vector most = load(scores);
    for (int at = LANES; at < padded; at += LANES) {
        const Vector score = load(scores + at);
        most = score > most ? score : most;
    }
    float largest = top;
    for (int lane = 0; lane < LANES; lane++) largest = most[lane] * scale > largest ? most[lane] * scale : largest;
    const float factor = largest > top ? std::exp(top - largest) : 1.f;
    top = largest;
    const float origin = largest == -INFINITY ? 0.f : largest;  // without a finite score yet, all weights are 0
    Vector sum = load(total) * factor;
    for (int at = 0; at < padded; at += LANES) {
        const Vector weight = exponential(load(scores + at) * scale - origin);
        sum += weight;
#ifdef __AVX512BF16__
        if constexpr (STEP == 2) {  // written over scores that were already read
            const __m256bh rounded = _mm512_cvtneps_pbh(__m512(weight));
            memcpy(reinterpret_cast<uint16_t *>(scores) + at, &rounded, 2 * LANES);
            continue;
        }
#endif
        store(scores + at, weight);
    }
    store(total, sum);
    return factor;
}

// State of a chunk's rows: queries, outputs (not yet divided by the sum), running maxima, and sums by lane.
struct Rows {
    Operand *queries;
    float *outputs, *tops, *totals;
    int64_t *starts, *limits;  // columns that a row sees
    int length, value_stride;  // operands of a query, numbers of an output
    float scale;
};

// Cells of one block: transposed keys [length][BLOCK], values [cells / STEP][value_stride].
struct Block {
    Operand *keys, *values;
    int64_t start;
    int cells;
};

template <int ROWS, int STEP> void attend_tile(const Rows &rows, int first, const Block &block) {
    alignas(64) float scores[ROWS][BLOCK];
    int visible = 0;
    for (int row = first; row < first + ROWS; row++) {
        const int64_t limit = rows.limits[row] - block.start;
        if (limit > visible) visible = limit < block.cells ? int(limit) : block.cells;
    }
    if (!visible) return;
    for (int at = 0; at < visible; at += PANEL)
        multiply<ROWS, STEP, false>(rows.queries + first * rows.length, rows.length, block.keys + at, BLOCK,
                                    rows.length, scores[0] + at, BLOCK);
    float *outputs = rows.outputs + first * rows.value_stride;
    for (int row = 0; row < ROWS; row++) {
        const int64_t limit = rows.limits[first + row] - block.start;
        const int64_t start = rows.starts[first + row] - block.start;
        for (int at = 0; at < start && at < visible; at++) scores[row][at] = -INFINITY;
        for (int at = limit > 0 ? int(limit < visible ? limit : visible) : 0; at < visible; at++)
            scores[row][at] = -INFINITY;
        const float factor = to_weights<STEP>(scores[row], visible, rows.scale, rows.tops[first + row],
                                              rows.totals + (first + row) * LANES);
        float *output = outputs + row * rows.value_stride;
        if (factor != 1.f)
            for (int at = 0; at < rows.value_stride; at += LANES) store(output + at, load(output + at) * factor);
    }
    for (int at = 0; at < rows.value_stride; at += PANEL)
        multiply<ROWS, STEP, true>(reinterpret_cast<const Operand *>(scores[0]), BLOCK, block.values + at,
                                   rows.value_stride, (visible + STEP - 1) / STEP, outputs + at, rows.value_stride);
}

// Sums of LANES vectors, which are overwritten.
inline Vector add_lanes(Vector (&vectors)[LANES]) {
    IntVector even, odd;
    for (int lane = 0; lane < LANES; lane++) even[lane] = 2 * lane, odd[lane] = 2 * lane + 1;
    for (int count = LANES / 2; count; count /= 2)
        for (int at = 0; at < count; at++)
            vectors[at] = __builtin_shuffle(vectors[2 * at], vectors[2 * at + 1], even) +
                          __builtin_shuffle(vectors[2 * at], vectors[2 * at + 1], odd);
    return vectors[0];
}

// Float32 cells of one block where they are: for a few rows, transposing keys takes longer than the products.
struct CellsInPlace {
    const float *keys[BLOCK], *values[BLOCK];
    int count, size, value_size;
};

// outputs += weights * values, in PARTS vectors from a column on.
template <int ROWS, int PARTS>
inline void add_values(const CellsInPlace &cells, const float (*weights)[BLOCK], int column, float *outputs,
                       int stride) {
    Vector sum[ROWS][PARTS];
    for (int row = 0; row < ROWS; row++)
        for (int part = 0; part < PARTS; part++) sum[row][part] = load(outputs + row * stride + column + part * LANES);
    for (int at = 0; at < cells.count; at++)
        for (int part = 0; part < PARTS; part++) {
            const Vector value = load(cells.values[at] + column + part * LANES);
            for (int row = 0; row < ROWS; row++) sum[row][part] += weights[row][at] * value;
        }
    for (int row = 0; row < ROWS; row++)
        for (int part = 0; part < PARTS; part++) store(outputs + row * stride + column + part * LANES, sum[row][part]);
}

template <int ROWS> void attend_in_place(const Rows &rows, const CellsInPlace &cells) {
    alignas(64) float scores[ROWS][BLOCK];
    const float *queries = reinterpret_cast<const float *>(rows.queries);
    for (int first = 0; first < cells.count; first += LANES)
        for (int row = 0; row < ROWS; row++) {
            Vector products[LANES];
            for (int lane = 0; lane < LANES; lane++) {
                const float *key = cells.keys[first + lane < cells.count ? first + lane : first];
                products[lane] = Vector{};
                for (int at = 0; at < cells.size; at += LANES)
                    products[lane] += load(queries + row * cells.size + at) * load(key + at);
            }
            store(scores[row] + first, add_lanes(products));
        }
    for (int row = 0; row < ROWS; row++) {
        const float factor =
            to_weights<1>(scores[row], cells.count, rows.scale, rows.tops[row], rows.totals + row * LANES);
        float *output = rows.outputs + row * rows.value_stride;
        for (int at = 0; at < cells.value_size; at += LANES) store(output + at, load(output + at) * factor);
    }
    int column = 0;
    for (; column + 2 * LANES <= cells.value_size; column += 2 * LANES)
        add_values<ROWS, 2>(cells, scores, column, rows.outputs, rows.value_stride);
    if (column < cells.value_size) add_values<ROWS, 1>(cells, scores, column, rows.outputs, rows.value_stride);
}

template <int STEP> void attend_block(const Rows &rows, int count, const Block &block) {
    int row = 0;
    for (; row + TILE <= count; row += TILE) attend_tile<TILE, STEP>(rows, row, block);
    switch (count - row) {
        case 1: return attend_tile<1, STEP>(rows, row, block);
        case 2: return attend_tile<2, STEP>(rows, row, block);
        case 3: return attend_tile<3, STEP>(rows, row, block);
        case 4: return attend_tile<4, STEP>(rows, row, block);
        case 5: return attend_tile<5, STEP>(rows, row, block);
    }
}

// Operands of one cell's numbers: the numbers themselves where they are stored as operands, else a converted copy.
template <typename Number, int STEP> inline const Operand *to_operands(const Number *numbers, int size, float *copy) {
    if constexpr (sizeof(Number) * STEP == sizeof(Operand)) {
        return reinterpret_cast<const Operand *>(numbers);
    } else {
        for (int at = 0; at < size; at++) copy[at] = to_float(numbers[at]);
        return reinterpret_cast<const Operand *>(copy);
    }
}

// Transpose four cells, missing ones as zeros, into columns of a block's keys.
inline void transpose_four(const Operand *const (&cells)[4], int length, Operand *keys) {
    typedef int Mask __attribute__((vector_size(16)));
    const Mask low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
    int at = 0;
    for (; at + 4 <= length; at += 4) {
        Quad rows[4];
        for (int cell = 0; cell < 4; cell++) rows[cell] = *reinterpret_cast<const Quad *>(cells[cell] + at);
        const Quad a = __builtin_shuffle(rows[0], rows[1], low), b = __builtin_shuffle(rows[2], rows[3], low);
        const Quad c = __builtin_shuffle(rows[0], rows[1], high), d = __builtin_shuffle(rows[2], rows[3], high);
        *reinterpret_cast<Quad *>(keys + (at + 0) * BLOCK) = __builtin_shuffle(a, b, first);
        *reinterpret_cast<Quad *>(keys + (at + 1) * BLOCK) = __builtin_shuffle(a, b, second);
        *reinterpret_cast<Quad *>(keys + (at + 2) * BLOCK) = __builtin_shuffle(c, d, first);
        *reinterpret_cast<Quad *>(keys + (at + 3) * BLOCK) = __builtin_shuffle(c, d, second);
    }
    for (; at < length; at++)
        for (int cell = 0; cell < 4; cell++) keys[at * BLOCK + cell] = cells[cell][at];
}

// A row's visible cells are the first `limit` of a list: `cells[0]`, `cells[1]`, ..., or adjacent ones from `first`.
struct Cells {
    const int64_t *list;
    int64_t first, count;
    int64_t operator[](int64_t at) const { return list ? list[at] : first + at; }
};

struct Matrix {
    const void *data;
    int64_t head_stride, cell_stride;
    int size;
};

template <typename Number, int STEP>
void load_block(const Matrix &keys, const Matrix &values, int head, const Cells &cells, int64_t start, int stride,
                float *copies, const Operand *zeros, Block &block) {
    const Number *key = static_cast<const Number *>(keys.data) + head * keys.head_stride;
    const Number *value = static_cast<const Number *>(values.data) + head * values.head_stride;
    block.start = start;
    block.cells = int(cells.count - start < BLOCK ? cells.count - start : BLOCK);
    for (int at = 0; at < block.cells; at += 4) {
        const Operand *four[4] = {zeros, zeros, zeros, zeros};
        for (int cell = 0; cell < 4 && at + cell < block.cells; cell++)
            four[cell] = to_operands<Number, STEP>(key + cells[start + at + cell] * keys.cell_stride, keys.size,
                                                   copies + cell * keys.size);
        transpose_four(four, keys.size / STEP, block.keys + at);
    }
    for (int at = 0; at < block.cells; at += STEP) {
        const Number *one = value + cells[start + at] * values.cell_stride;
        Operand *row = block.values + at / STEP * stride;
        if constexpr (STEP == 2) {
            const bool has_other = at + 1 < block.cells;
            const Number *other = has_other ? value + cells[start + at + 1] * values.cell_stride : one;
            const uint32_t kept = has_other ? ~0u : 0u;
            for (int column = 0; column < values.size; column++)
                row[column] = uint32_t(one[column]) | (uint32_t(other[column]) << 16 & kept);
        } else {
            float *numbers = reinterpret_cast<float *>(row);
            for (int column = 0; column < values.size; column++) numbers[column] = to_float(one[column]);
        }
    }
}

// Cells that adjacent tokens of a pass attend to: all of them to the same list of cells, or each to its own.
struct Part {
    const int64_t *cells;           // (sequences, columns), or null for adjacent cells
    const int64_t *starts, *limits;  // visible columns of each token: from its start to its limit; null: all
    int64_t first_cell, columns;
    int64_t first_token, tokens;
    int64_t sequences;  // 1, or `tokens`: each token has its own cells
};

struct Shape {
    int64_t heads, key_heads, size, value_size;
    float scale;
};

struct Strides {
    int64_t head, token;  // or cell
};

// Numbers of one layer. Outputs and log-sum-exps are those of all tokens of the pass.
template <typename Number> struct States {
    const Number *queries, *keys, *values;
    Number *outputs;
    float *sums;  // (heads, tokens), or null
    Strides query, key, value, output;
    int64_t tokens;
};

// Attention over one part. It is planned once, and then computed task by task for every layer.
template <typename Number> class PartAttention {
    static constexpr int STEP = Format<Number>::STEP;
    Part part{};
    Shape shape{};
    int shared = 0, length = 0, value_stride = 0;
    int64_t rows = 0;   // of one key head and sequence
    int64_t pairs = 0;  // of a key head and a sequence
    bool in_place = false, is_partial = false;
    int64_t chunk = 0, chunks = 0, segment_cells = 0, segments = 0;
    std::unique_ptr<float[]> partial;       // outputs of segments [heads * tokens][segments][value_stride]
    std::unique_ptr<float[]> partial_sums;  // log-sum-exps of segments [heads * tokens][segments]

  public:
    // Returns false without memory. `has_others`: the same tokens attend to other parts, too.
    bool plan(const Part &one, const Shape &all, bool has_others, int64_t threads) {
        part = one, shape = all;
        shared = int(shape.heads / shape.key_heads), length = int(shape.size / STEP);
        value_stride = int((shape.value_size + PANEL - 1) / PANEL * PANEL);
        rows = part.sequences == 1 ? shared * part.tokens : shared, pairs = shape.key_heads * part.sequences;
        // Cells are not copied to blocks.
        in_place = sizeof(Number) == sizeof(float) && part.sequences > 1 && rows <= TILE && shape.size % LANES == 0 &&
                   shape.value_size % LANES == 0;
        // Four tasks for each thread, unless chunks would be so small that preparing blocks takes as long.
        const int64_t wanted = rows * pairs / (4 * threads) / TILE * TILE;
        chunk = wanted < SMALLEST_CHUNK ? SMALLEST_CHUNK : wanted > LARGEST_CHUNK ? LARGEST_CHUNK : wanted;
        if (chunk > rows) chunk = (rows + TILE - 1) / TILE * TILE;
        chunks = (rows + chunk - 1) / chunk;
        const bool divided = part.sequences == 1 && rows <= FEW_ROWS && !part.limits;
        segment_cells = (part.columns / MOST_SEGMENTS / BLOCK + 1) * BLOCK;
        if (segment_cells < SMALLEST_SEGMENT) segment_cells = SMALLEST_SEGMENT;
        segments = divided && part.columns ? (part.columns + segment_cells - 1) / segment_cells : 1;
        is_partial = has_others || segments > 1;
        if (!is_partial) return true;
        partial.reset(new (std::nothrow) float[shape.heads * part.tokens * segments * value_stride]);
        partial_sums.reset(new (std::nothrow) float[shape.heads * part.tokens * segments]);
        return partial && partial_sums;
    }

    int64_t tasks() const { return pairs * chunks * segments; }
    bool is_joined() const { return is_partial; }
    bool has_token(int64_t token) const {
        return token >= part.first_token && token < part.first_token + part.tokens;
    }

    // Operands of a thread's memory, which must be zeros before the first task: columns of padding must be numbers.
    size_t memory_words() const {
        return size_t(length + value_stride) * (BLOCK + chunk) + (LANES + 5) * chunk + 5 * shape.size;
    }

    void attend(int64_t task, const States<Number> &states, Operand *memory) const {
        task = tasks() - 1 - task;  // later tokens see more cells: the longest tasks first
        attend_chunk(task % pairs, task / pairs % chunks * chunk, task / pairs / chunks, states, memory);
    }

    // Largest log-sum-exp of a head's token among the segments of this part and `top`.
    float top_sum(int64_t head, int64_t token, float top) const {
        const float *sums = partial_sums.get() + (head * part.tokens + token - part.first_token) * segments;
        for (int64_t segment = 0; segment < segments; segment++) top = sums[segment] > top ? sums[segment] : top;
        return top;
    }

    // Add the segments' outputs, weighted by their sums; returns the sum of the weights.
    float add_segments(int64_t head, int64_t token, float origin, float *outputs) const {
        const int64_t row = (head * part.tokens + token - part.first_token) * segments;
        float total = 0;
        for (int64_t segment = row; segment < row + segments; segment++) {
            const float weight = std::exp(partial_sums[segment] - origin);
            const float *output = partial.get() + segment * value_stride;
            total += weight;
            for (int64_t column = 0; column < shape.value_size; column++) outputs[column] += weight * output[column];
        }
        return total;
    }

  private:
    void attend_chunk(int64_t pair, int64_t first, int64_t segment, const States<Number> &states,
                      Operand *memory) const {
        const int head = int(pair % shape.key_heads);
        const int64_t sequence = pair / shape.key_heads;
        const int count = int(rows - first < chunk ? rows - first : chunk);
        Block block{memory, memory + length * BLOCK, 0, 0};
        Rows state{};
        state.starts = reinterpret_cast<int64_t *>(block.values + value_stride * BLOCK);
        state.limits = state.starts + chunk;
        state.queries = reinterpret_cast<Operand *>(state.limits + chunk);
        state.outputs = reinterpret_cast<float *>(state.queries + length * chunk);
        state.totals = state.outputs + value_stride * chunk;
        state.tops = state.totals + LANES * chunk;
        state.length = length, state.value_stride = value_stride, state.scale = shape.scale;
        float *copies = state.tops + chunk;
        Operand *zeros = reinterpret_cast<Operand *>(copies + 4 * shape.size);
        memset(zeros, 0, sizeof(Operand) * shape.size);  // a task with other chunks may have written here
        const Visible visible = begin(state, copies, states, head, sequence, first, count);
        const Cells cells{part.cells ? part.cells + sequence * part.columns : nullptr, part.first_cell, visible.end};
        const int64_t next = (segment + 1) * segment_cells;
        const int64_t end = segments > 1 && next < visible.end ? next : visible.end;
        const int64_t begun = segments > 1 ? segment * segment_cells : visible.start / BLOCK * BLOCK;
        const Matrix keys{states.keys, states.key.head, states.key.token, int(shape.size)};
        const Matrix values{states.values, states.value.head, states.value.token, int(shape.value_size)};
        if (in_place) attend_private(state, keys, values, head, cells);
        for (int64_t start = begun; start < end && !in_place; start += BLOCK) {
            load_block<Number, STEP>(keys, values, head, cells, start, value_stride, copies, zeros, block);
            attend_block<STEP>(state, count, block);
        }
        finish(state, states, head, sequence, first, count, segment);
    }

    template <int ROWS = TILE>
    void attend_private(const Rows &state, const Matrix &keys, const Matrix &values, int head,
                        const Cells &cells) const {
        if constexpr (ROWS > 1)
            if (rows < ROWS) return attend_private<ROWS - 1>(state, keys, values, head, cells);
        const float *key = static_cast<const float *>(keys.data) + head * keys.head_stride;
        const float *value = static_cast<const float *>(values.data) + head * values.head_stride;
        CellsInPlace cells_in_place{};
        cells_in_place.size = keys.size, cells_in_place.value_size = values.size;
        for (int64_t start = 0; start < cells.count; start += BLOCK) {
            const int count = int(cells.count - start < BLOCK ? cells.count - start : BLOCK);
            cells_in_place.count = count;
            for (int at = 0; at < count; at++) {
                cells_in_place.keys[at] = key + cells[start + at] * keys.cell_stride;
                cells_in_place.values[at] = value + cells[start + at] * values.cell_stride;
            }
            attend_in_place<ROWS>(state, cells_in_place);
        }
    }

    int64_t query_head(int head, int64_t row) const {
        return head * shared + (part.sequences == 1 ? row / part.tokens : row);
    }

    // Index among the part's tokens.
    int64_t token(int64_t sequence, int64_t row) const { return part.sequences == 1 ? row % part.tokens : sequence; }

    struct Visible {
        int64_t start, end;  // columns
    };

    // Load the queries of a chunk; returns the columns that any of its rows sees.
    Visible begin(const Rows &state, float *copies, const States<Number> &states, int head, int64_t sequence,
                  int64_t first, int count) const {
        Visible visible{part.columns, 0};
        for (int row = 0; row < count; row++) {
            const int64_t at = token(sequence, first + row);
            const Number *query = states.queries + query_head(head, first + row) * states.query.head +
                                  (part.first_token + at) * states.query.token;
            const Operand *operands = to_operands<Number, STEP>(query, int(shape.size), copies);
            memcpy(state.queries + row * length, operands, sizeof(Operand) * length);
            const int64_t start = part.starts ? part.starts[at] : 0;
            state.starts[row] = start;
            state.limits[row] = part.limits ? part.limits[at] : part.columns;
            if (start < visible.start) visible.start = start;
            if (state.limits[row] > visible.end) visible.end = state.limits[row];
            state.tops[row] = -INFINITY;
        }
        memset(state.outputs, 0, sizeof(float) * count * value_stride);
        memset(state.totals, 0, sizeof(float) * count * LANES);
        return visible;
    }

    void finish(const Rows &state, const States<Number> &states, int head, int64_t sequence, int64_t first, int count,
                int64_t segment) const {
        for (int row = 0; row < count; row++) {
            const int64_t from = query_head(head, first + row), at = token(sequence, first + row);
            float total = 0;
            for (int lane = 0; lane < LANES; lane++) total += state.totals[row * LANES + lane];
            const float *output = state.outputs + row * value_stride, factor = inverse(total);
            const float sum = state.tops[row] + std::log(total);
            if (is_partial) {
                const int64_t to = (from * part.tokens + at) * segments + segment;
                for (int column = 0; column < value_stride; column++)
                    partial[to * value_stride + column] = output[column] * factor;
                partial_sums[to] = sum;
            } else {
                write_output(states, from, part.first_token + at, output, factor, sum);
            }
        }
    }

    static float inverse(float total) { return total == 0 ? 0 : 1 / total; }  // NaN stays NaN

  public:
    void write_output(const States<Number> &states, int64_t head, int64_t at, const float *output, float factor,
                      float sum) const {
        Number *to = states.outputs + head * states.output.head + at * states.output.token;
        for (int64_t column = 0; column < shape.value_size; column++) from_float(output[column] * factor, to[column]);
        if (states.sums) states.sums[head * states.tokens + at] = sum;
    }
};

constexpr int MOST_VALUES = 1024;

// Memory of each thread of a parallel region.
class ThreadMemory {
    size_t words;  // of one thread, in whole cache lines
    Operand *all;

  public:
    ThreadMemory(size_t needed_words, int64_t threads)
        : words((needed_words + 15) / 16 * 16),
          all(static_cast<Operand *>(aligned_alloc(64, words * threads * sizeof(Operand)))) {}
    ThreadMemory(const ThreadMemory &) = delete;
    ~ThreadMemory() { free(all); }

    bool is_there() const { return all; }

    // The calling thread's own, filled with zeros.
    Operand *begin() const {
        Operand *own = all + words * omp_get_thread_num();
        memset(own, 0, words * sizeof(Operand));
        return own;
    }
};

// Attention of all tokens of a pass, over one or more parts each.
template <typename Number> class Attention {
    std::unique_ptr<PartAttention<Number>[]> parts;
    int64_t part_count = 0, head_count = 0, value_size = 0, task_count = 0;
    bool is_joined = false;

  public:
    // Returns false without memory.
    bool plan(const Part *given, int64_t count, const Shape &shape, int64_t threads) {
        parts.reset(new (std::nothrow) PartAttention<Number>[count]);
        part_count = count, head_count = shape.heads, value_size = shape.value_size;
        for (int64_t at = 0; parts && at < count; at++) {
            bool has_others = false;
            for (int64_t other = 0; other < count; other++)
                has_others = has_others ||
                             (other != at && given[other].first_token < given[at].first_token + given[at].tokens &&
                              given[at].first_token < given[other].first_token + given[other].tokens);
            if (!parts[at].plan(given[at], shape, has_others, threads)) return false;
            task_count += parts[at].tasks();
            is_joined = is_joined || parts[at].is_joined();
        }
        return bool(parts);
    }

    size_t memory_words() const {
        size_t most = 0;
        for (int64_t at = 0; at < part_count; at++)
            if (parts[at].memory_words() > most) most = parts[at].memory_words();
        return most;
    }

    // Called by all threads of a parallel region, each with its own memory; ends with a barrier.
    void run(const States<Number> &states, Operand *memory) const {
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < task_count; task++) {
            int64_t at = 0, rest = task;
            while (rest >= parts[at].tasks()) rest -= parts[at++].tasks();
            parts[at].attend(rest, states, memory);
        }
        if (!is_joined) return;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < head_count * states.tokens; row++)
            join_parts(row / states.tokens, row % states.tokens, states);
    }

  private:
    // Average of a token's outputs of all parts, weighted by their sums.
    void join_parts(int64_t head, int64_t token, const States<Number> &states) const {
        float outputs[MOST_VALUES], top = -INFINITY, total = 0;
        int64_t last = -1;
        for (int64_t at = 0; at < part_count; at++) {
            if (!parts[at].has_token(token)) continue;
            if (!parts[at].is_joined()) return;
            top = parts[at].top_sum(head, token, top), last = at;
        }
        if (last < 0) return;
        memset(outputs, 0, sizeof(float) * value_size);
        const float origin = top == -INFINITY ? 0.f : top;
        for (int64_t at = 0; at <= last; at++)
            if (parts[at].has_token(token)) total += parts[at].add_segments(head, token, origin, outputs);
        parts[last].write_output(states, head, token, outputs, total == 0 ? 0 : 1 / total, top + std::log(total));
    }
};

}  // namespace
