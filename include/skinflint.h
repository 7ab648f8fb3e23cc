/*
 * skinflint.h: what a program may say to Skinflint: to the recorder, and to the allocator.
 *
 *     #include "skinflint.h"
 *
 *     skinflint_mark("load begin");
 *     load();
 *     skinflint_mark("load end");       // what "load" left behind is a zombie of that phase
 *
 *     skinflint_trim();                 // give back all that is free, now
 *
 * H1  Nothing has to be linked: without the recorder a mark is one load and one branch; without the
 *     allocator its functions answer 0.
 * H2  A mark allocates nothing in the program and may be called from any thread, also before main
 *     and while the program exits. The name is copied; it may be freed after the call.
 * H3  C and C++, gcc and clang, with or without -fPIE.
 *
 * Not here: malloc and its kin, which <stdlib.h> and <malloc.h> declare; what marks are good for (docs), marks by signal (`skinflint record --help`).
 */
#ifndef SKINFLINT_H
#define SKINFLINT_H

#if !defined(__linux__) || !defined(__x86_64__)
#error "Skinflint records on Linux x86-64 only"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Marks a moment. `name`: any bytes up to a NUL; UTF-8 is shown as it is. "NAME begin" and
 * "NAME end" make a phase.
 *
 * The recorder exports a function `skinflint_mark`. A weak definition of the same name here would
 * hide it, since the executable comes before preloaded objects in the order of lookup; so this
 * wrapper has another name in the assembler, and refers to the recorder's weakly.
 */
static __inline__ void skinflint_mark(const char *name) __asm__("skinflint_mark_if_recorded_")
    __attribute__((unused));

static __inline__ void skinflint_mark(const char *name)
{
    void (*recorder)(const char *);
    /*
     * Through the GOT, also where the compiler would not: in a position-dependent executable the
     * linker answers a direct weak reference with 0 for good, and marks would be lost in silence.
     */
    __asm__(".weak skinflint_mark\n\tmovq skinflint_mark@GOTPCREL(%%rip), %0" : "=r"(recorder));
    if (recorder)
        recorder(name);
}

/*
 * Gives all free memory back to the system at once. Needs no call: what is free goes back by itself after a
 * while. 1 if anything was given back, 0 if not, or if the program does not run on libskinflint.so.
 * Thread-safe; takes about half a microsecond for each page that is given back.
 */
static __inline__ int skinflint_trim(void) __asm__("skinflint_trim_if_preloaded_") __attribute__((unused));

static __inline__ int skinflint_trim(void)
{
    int (*allocator)(void);
    __asm__(".weak skinflint_trim\n\tmovq skinflint_trim@GOTPCREL(%%rip), %0" : "=r"(allocator));
    return allocator ? allocator() : 0;
}

#ifdef __cplusplus
}
#endif

#endif /* SKINFLINT_H */
