/*
 * hints.c: operator new with a temperature (LLVM's __hot_cold_t), by its mangled names, and the C++
 * operators in a program without any C++ library.
 *
 *   hints        all eight, and a failing nothrow one: null
 *   no-library   a throwing new of too much: one line and SIGABRT, since nobody can catch
 *
 * Only the preloaded library has these functions: without it each is null, and said so.
 */
#include "check.h"

typedef void *New(size_t, uint8_t), *NewNothrow(size_t, const void *, uint8_t);
typedef void *NewAligned(size_t, size_t, uint8_t), *NewAlignedNothrow(size_t, size_t, const void *, uint8_t);
extern __attribute__((weak)) New _Znwm12__hot_cold_t, _Znam12__hot_cold_t;
extern __attribute__((weak)) NewNothrow _ZnwmRKSt9nothrow_t12__hot_cold_t, _ZnamRKSt9nothrow_t12__hot_cold_t;
extern __attribute__((weak)) NewAligned _ZnwmSt11align_val_t12__hot_cold_t, _ZnamSt11align_val_t12__hot_cold_t;
extern __attribute__((weak)) NewAlignedNothrow _ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t,
    _ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t;
extern __attribute__((weak)) void _ZdlPv(void *), _ZdaPv(void *);
extern __attribute__((weak)) void *_Znwm(size_t);

static void *seen(void *block, size_t alignment)
{
    CHECK(block != NULL && (uintptr_t)block % alignment == 0);
    memset(block, 1, 100);
    return block;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (_Znwm12__hot_cold_t == NULL) {
        say("not here\n");
        return 0;
    }
    if (strcmp(argv[1], "no-library") == 0) {
        void *block = _Znwm(PTRDIFF_MAX);
        say("still here: %p\n", block);
        return 0;
    }
    char nothrow = 0;
    _ZdlPv(seen(_Znwm12__hot_cold_t(100, 1), 16));
    _ZdaPv(seen(_Znam12__hot_cold_t(100, 255), 16));
    _ZdlPv(seen(_ZnwmRKSt9nothrow_t12__hot_cold_t(100, &nothrow, 1), 16));
    _ZdaPv(seen(_ZnamRKSt9nothrow_t12__hot_cold_t(100, &nothrow, 1), 16));
    _ZdlPv(seen(_ZnwmSt11align_val_t12__hot_cold_t(100, 256, 1), 256));
    _ZdaPv(seen(_ZnamSt11align_val_t12__hot_cold_t(100, 256, 1), 256));
    _ZdlPv(seen(_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t(100, 256, &nothrow, 1), 256));
    _ZdaPv(seen(_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t(100, 256, &nothrow, 1), 256));
    CHECK(_ZnwmRKSt9nothrow_t12__hot_cold_t(PTRDIFF_MAX, &nothrow, 1) == NULL);
    say("hints ok\n");
    return 0;
}
