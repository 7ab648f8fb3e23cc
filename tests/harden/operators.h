// The operators of C++, and what C23 adds, for programs in C.

#include <stddef.h>

extern void *new_one(size_t) __asm__("_Znwm");
extern void *new_array(size_t) __asm__("_Znam");
extern void *new_one_or_null(size_t, const void *) __asm__("_ZnwmRKSt9nothrow_t");
extern void *new_array_or_null(size_t, const void *) __asm__("_ZnamRKSt9nothrow_t");
extern void *new_one_aligned(size_t, size_t) __asm__("_ZnwmSt11align_val_t");
extern void *new_array_aligned(size_t, size_t) __asm__("_ZnamSt11align_val_t");
extern void delete_one(void *) __asm__("_ZdlPv");
extern void delete_array(void *) __asm__("_ZdaPv");
extern void delete_one_sized(void *, size_t) __asm__("_ZdlPvm");
extern void delete_array_sized(void *, size_t) __asm__("_ZdaPvm");
extern void delete_one_aligned(void *, size_t) __asm__("_ZdlPvSt11align_val_t");
extern void delete_array_aligned(void *, size_t) __asm__("_ZdaPvSt11align_val_t");
extern void delete_one_sized_aligned(void *, size_t, size_t) __asm__("_ZdlPvmSt11align_val_t");
extern void delete_array_sized_aligned(void *, size_t, size_t) __asm__("_ZdaPvmSt11align_val_t");
// Not in glibc yet.
extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));
