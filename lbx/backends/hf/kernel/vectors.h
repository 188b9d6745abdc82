// Vectors of this instruction set, and the product of small matrices that attention and linear layers are made of.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

extern "C" int omp_get_thread_num();  // of the OpenMP library that torch has loaded

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, WIDTH = 4;  // 6 x 4 sums in 32 registers
#else
constexpr int LANES = 8, WIDTH = 2;  // 6 x 2 sums in 16 registers
#endif
constexpr int TILE = 6, PANEL = LANES * WIDTH;

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t IntVector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
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

}  // namespace
