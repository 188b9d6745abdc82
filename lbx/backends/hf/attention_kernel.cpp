// Attention of new tokens over cells of a KV cache, on a CPU. attention_kernel.py loads it, .ci/build_kernel.py
// compiles it once for each instruction set.
//
// Query heads that share a key head, times tokens, are rows of one matrix. A task is a chunk of these rows; it goes
// through the cells in blocks and keeps the running maximum and sum of each row. Keys of a block are transposed, so
// that both products are sums of broadcast numbers times vectors, and bfloat16 numbers are used as pairs where the
// processor multiplies pairs. Private float32 cells of a few rows are read where they are. The arithmetic of a row does
// not depend on the number of threads, and on other rows only by whether there are few of them.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, WIDTH = 4;  // 6 x 4 sums in 32 registers
#else
constexpr int LANES = 8, WIDTH = 2;  // 6 x 2 sums in 16 registers
#endif
constexpr int TILE = 6, PANEL = LANES * WIDTH, BLOCK = 256, SMALLEST_CHUNK = 48, LARGEST_CHUNK = 240;
constexpr int64_t LEAST_WORK = 1 << 22;  // products of two numbers; waking another thread costs as much time
constexpr int FEW_ROWS = 96, MOST_SEGMENTS = 16, SMALLEST_SEGMENT = 4 * BLOCK;  // for few rows, cells are divided, too

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t IntVector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t Quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t Operand __attribute__((may_alias));  // a float, or a pair of bfloat16

inline Vector load(const void *from) { return *static_cast<const Vector *>(from); }
inline void store(void *to, Vector value) { *static_cast<Vector *>(to) = value; }
inline Vector splat(float value) { return value - Vector{}; }

inline float to_float(float value) { return value; }
inline float to_float(uint16_t bits) {
    uint32_t wide = uint32_t{bits} << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
inline void from_float(float value, float &to) { to = value; }
inline void from_float(float value, uint16_t &to) {  // rounds to nearest, ties to even
    uint32_t bits;
    memcpy(&bits, &value, 4);
    to = value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

template <typename Number> struct Format {
    static constexpr int STEP = 1;  // numbers in an operand
};
#ifdef __AVX512BF16__
template <> struct Format<uint16_t> {
    static constexpr int STEP = 2;
};
#endif

template <int STEP> inline Vector multiply_add(Operand a, Vector b, Vector sum) {
#ifdef __AVX512BF16__
    if constexpr (STEP == 2)
        return Vector(_mm512_dpbf16_ps(__m512(sum), (__m512bh)_mm512_set1_epi32(int(a)), (__m512bh)__m512(b)));
#endif
    float value;
    memcpy(&value, &a, 4);
    return sum + value * b;
}

// exp(x) for x <= 0, within about 1e-7 of its value; 0 below -87.3, NaN for NaN.
inline Vector exponential(Vector x) {
    const Vector lowest = splat(-87.3f), magic = splat(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
    const IntVector hidden = IntVector(x <= lowest), ordered = IntVector(x == x);
    x = x <= lowest ? lowest : x;
    Vector exponent = x * 1.44269504f + magic;
    const IntVector shifted = IntVector(exponent) << 23;
    exponent -= magic;
    const Vector rest = (x - exponent * 0.693145752f) - exponent * 1.42860677e-6f;  // ln 2 in two parts
    Vector power = splat(1.f / 720);
    constexpr float factors[] = {1.f / 120, 1.f / 24, 1.f / 6, 1.f / 2, 1.f, 1.f};
    for (const float factor : factors) power = power * rest + factor;
    return Vector((IntVector(power) + (shifted & ordered)) & ~hidden);
}

// sums[ROWS][PANEL] = a[ROWS][length] b[length][PANEL], or added to the sums.
template <int ROWS, int STEP, bool ADD>
inline void multiply(const Operand *a, int a_stride, const Operand *b, int b_stride, int length, float *sums,
                     int stride) {
    Vector sum[ROWS][WIDTH];
    for (int row = 0; row < ROWS; row++)
        for (int part = 0; part < WIDTH; part++)
            sum[row][part] = ADD ? load(sums + row * stride + part * LANES) : Vector{};
    for (int at = 0; at < length; at++) {
        Vector columns[WIDTH];
        for (int part = 0; part < WIDTH; part++) columns[part] = load(b + at * b_stride + part * LANES);
#pragma GCC unroll 6
        for (int row = 0; row < ROWS; row++)
            for (int part = 0; part < WIDTH; part++)
                sum[row][part] = multiply_add<STEP>(a[row * a_stride + at], columns[part], sum[row][part]);
    }
    for (int row = 0; row < ROWS; row++)
        for (int part = 0; part < WIDTH; part++) store(sums + row * stride + part * LANES, sum[row][part]);
}

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
    int64_t *limits;           // number of visible cells
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

}  // namespace

// Arguments, in the order of attention_kernel.py.
struct Arguments {
    const void *queries, *keys, *values;
    void *outputs;          // (heads, tokens, value_size)
    float *sums;            // log-sum-exp of the scores, (heads, tokens)
    const int64_t *cells;   // (sequences, columns), or null for adjacent cells
    const int64_t *counts;  // visible cells of each sequence, or null for `columns`
    int64_t query_head_stride, query_token_stride;
    int64_t key_head_stride, key_cell_stride, value_head_stride, value_cell_stride;
    int64_t first_cell, columns;
    int64_t heads, key_heads, tokens, size, value_size;
    int64_t sequences;  // 1, or `tokens`: each token has its own cells
    int64_t causal;     // token t sees the first t + 1 cells only
    int64_t threads;
    float scale;
};

namespace {

template <typename Number> class Attention {
    static constexpr int STEP = Format<Number>::STEP;
    const Arguments &given;
    const int shared, length, value_stride;
    const int64_t rows;   // of one key head and sequence
    const int64_t pairs;  // of a key head and a sequence
    const bool in_place;  // cells are not copied to blocks
    int64_t chunk, chunks, segment_cells, segments;
    std::unique_ptr<float[]> partial;       // outputs of segments [heads * tokens][segments][value_stride]
    std::unique_ptr<float[]> partial_sums;  // log-sum-exps of segments [heads * tokens][segments]

  public:
    explicit Attention(const Arguments &arguments)
        : given(arguments), shared(int(given.heads / given.key_heads)), length(int(given.size / STEP)),
          value_stride(int((given.value_size + PANEL - 1) / PANEL * PANEL)),
          rows(given.sequences == 1 ? shared * given.tokens : shared), pairs(given.key_heads * given.sequences),
          in_place(sizeof(Number) == sizeof(float) && given.sequences > 1 && rows <= TILE &&
                   given.size % LANES == 0 && given.value_size % LANES == 0) {
        // Four tasks for each thread, unless chunks would be so small that preparing blocks takes as long.
        const int64_t wanted = rows * pairs / (4 * given.threads) / TILE * TILE;
        chunk = wanted < SMALLEST_CHUNK ? SMALLEST_CHUNK : wanted > LARGEST_CHUNK ? LARGEST_CHUNK : wanted;
        if (chunk > rows) chunk = (rows + TILE - 1) / TILE * TILE;
        chunks = (rows + chunk - 1) / chunk;
        const bool divided = given.sequences == 1 && rows <= FEW_ROWS && !given.causal;
        segment_cells = (given.columns / MOST_SEGMENTS / BLOCK + 1) * BLOCK;
        if (segment_cells < SMALLEST_SEGMENT) segment_cells = SMALLEST_SEGMENT;
        segments = divided && given.columns ? (given.columns + segment_cells - 1) / segment_cells : 1;
        if (segments > 1) {
            partial.reset(new (std::nothrow) float[given.heads * given.tokens * segments * value_stride]);
            partial_sums.reset(new (std::nothrow) float[given.heads * given.tokens * segments]);
        }
    }

    bool run() const {
        if (segments > 1 && !(partial && partial_sums)) return false;
        const int64_t tasks = pairs * chunks * segments;
        bool complete = true;
        const int64_t work = rows * pairs * given.columns * (given.size + given.value_size);
#pragma omp parallel num_threads(int(given.threads)) if (tasks > 1 && given.threads > 1 && work > LEAST_WORK)
        {
            const size_t words = size_t(length + value_stride) * (BLOCK + chunk) + (LANES + 3) * chunk + 5 * given.size;
            Operand *memory = static_cast<Operand *>(aligned_alloc(64, (words * sizeof(Operand) + 63) / 64 * 64));
            if (memory) {
                memset(memory, 0, words * sizeof(Operand));  // columns of padding must be numbers
            } else {
#pragma omp atomic write
                complete = false;
            }
#pragma omp for schedule(dynamic)
            for (int64_t task = tasks - 1; task >= 0; task--)  // causal: the longest first
                if (memory) attend_chunk(task % pairs, task / pairs % chunks * chunk, task / pairs / chunks, memory);
            free(memory);
        }
        if (complete && segments > 1) join_segments();
        return complete;
    }

  private:
    void attend_chunk(int64_t pair, int64_t first, int64_t segment, Operand *memory) const {
        const int head = int(pair % given.key_heads);
        const int64_t sequence = pair / given.key_heads;
        const int count = int(rows - first < chunk ? rows - first : chunk);
        Block block{memory, memory + length * BLOCK, 0, 0};
        Rows state{};
        state.limits = reinterpret_cast<int64_t *>(block.values + value_stride * BLOCK);
        state.queries = reinterpret_cast<Operand *>(state.limits + chunk);
        state.outputs = reinterpret_cast<float *>(state.queries + length * chunk);
        state.totals = state.outputs + value_stride * chunk;
        state.tops = state.totals + LANES * chunk;
        state.length = length, state.value_stride = value_stride, state.scale = given.scale;
        float *copies = state.tops + chunk;
        const Operand *zeros = reinterpret_cast<const Operand *>(copies + 4 * given.size);
        const Cells cells{given.cells ? given.cells + sequence * given.columns : nullptr, given.first_cell,
                          given.counts ? given.counts[sequence] : given.columns};
        const int64_t visible = begin(state, copies, head, sequence, first, count, cells.count);
        const int64_t next = (segment + 1) * segment_cells, end = segments > 1 && next < visible ? next : visible;
        const Matrix keys{given.keys, given.key_head_stride, given.key_cell_stride, int(given.size)};
        const Matrix values{given.values, given.value_head_stride, given.value_cell_stride, int(given.value_size)};
        if (in_place) attend_private(state, keys, values, head, cells);
        for (int64_t start = segment * segment_cells; start < end && !in_place; start += BLOCK) {
            load_block<Number, STEP>(keys, values, head, cells, start, value_stride, copies, zeros, block);
            attend_block<STEP>(state, count, block);
        }
        finish(state, head, sequence, first, count, segment);
    }

    template <int ROWS = TILE>
    void attend_private(const Rows &state, const Matrix &keys, const Matrix &values, int head,
                        const Cells &cells) const {
        if constexpr (ROWS > 1)
            if (rows < ROWS) return attend_private<ROWS - 1>(state, keys, values, head, cells);
        const float *key = static_cast<const float *>(keys.data) + head * keys.head_stride;
        const float *value = static_cast<const float *>(values.data) + head * values.head_stride;
        CellsInPlace part{};
        part.size = keys.size, part.value_size = values.size;
        for (int64_t start = 0; start < cells.count; start += BLOCK) {
            part.count = int(cells.count - start < BLOCK ? cells.count - start : BLOCK);
            for (int at = 0; at < part.count; at++) {
                part.keys[at] = key + cells[start + at] * keys.cell_stride;
                part.values[at] = value + cells[start + at] * values.cell_stride;
            }
            attend_in_place<ROWS>(state, part);
        }
    }

    int64_t query_head(int head, int64_t row) const {
        return head * shared + (given.sequences == 1 ? row / given.tokens : row);
    }

    int64_t token(int64_t sequence, int64_t row) const { return given.sequences == 1 ? row % given.tokens : sequence; }

    // Load the queries of a chunk; returns the largest number of visible cells.
    int64_t begin(const Rows &state, float *copies, int head, int64_t sequence, int64_t first, int count,
                  int64_t cells) const {
        int64_t most = 0;
        for (int row = 0; row < count; row++) {
            const int64_t at = token(sequence, first + row);
            const Number *query = static_cast<const Number *>(given.queries) +
                                  query_head(head, first + row) * given.query_head_stride +
                                  at * given.query_token_stride;
            const Operand *operands = to_operands<Number, STEP>(query, int(given.size), copies);
            memcpy(state.queries + row * length, operands, sizeof(Operand) * length);
            state.limits[row] = given.causal && at + 1 < cells ? at + 1 : cells;
            if (state.limits[row] > most) most = state.limits[row];
            state.tops[row] = -INFINITY;
        }
        memset(state.outputs, 0, sizeof(float) * count * value_stride);
        memset(state.totals, 0, sizeof(float) * count * LANES);
        return most;
    }

    void finish(const Rows &state, int head, int64_t sequence, int64_t first, int count, int64_t segment) const {
        for (int row = 0; row < count; row++) {
            const int64_t at = query_head(head, first + row) * given.tokens + token(sequence, first + row);
            float total = 0;
            for (int lane = 0; lane < LANES; lane++) total += state.totals[row * LANES + lane];
            const float *output = state.outputs + row * value_stride, factor = inverse(total);
            const float sum = state.tops[row] + std::log(total);
            if (segments > 1) {
                float *to = partial.get() + (at * segments + segment) * value_stride;
                for (int column = 0; column < value_stride; column++) to[column] = output[column] * factor;
                partial_sums[at * segments + segment] = sum;
            } else {
                write_output(at, output, factor);
                given.sums[at] = sum;
            }
        }
    }

    static float inverse(float total) { return total == 0 ? 0 : 1 / total; }  // NaN stays NaN

    void write_output(int64_t at, const float *output, float factor) const {
        Number *to = static_cast<Number *>(given.outputs) + at * given.value_size;
        for (int column = 0; column < given.value_size; column++) from_float(output[column] * factor, to[column]);
    }

    // Average of the segments' outputs, weighted by their sums.
    void join_segments() const {
        for (int64_t at = 0; at < given.heads * given.tokens; at++) {
            const float *sums = partial_sums.get() + at * segments;
            float *outputs = partial.get() + at * segments * value_stride, top = sums[0], total = 0;
            for (int64_t segment = 1; segment < segments; segment++) top = sums[segment] > top ? sums[segment] : top;
            const float origin = top == -INFINITY ? 0.f : top;
            for (int64_t segment = 0; segment < segments; segment++) {
                const float weight = std::exp(sums[segment] - origin), *output = outputs + segment * value_stride;
                total += weight;
                for (int column = 0; column < value_stride; column++)
                    outputs[column] = (segment ? outputs[column] : 0) + weight * output[column];
            }
            write_output(at, outputs, inverse(total));
            given.sums[at] = top + std::log(total);
        }
    }
};

}  // namespace

// Both return 0, or 1 without memory.
extern "C" int attend_float32(const Arguments *arguments) { return !Attention<float>(*arguments).run(); }
extern "C" int attend_bfloat16(const Arguments *arguments) { return !Attention<uint16_t>(*arguments).run(); }
