/* An allocator that never reuses anything, and three that also fail after some calls: crash_ faults, hang_ waits for
   ever, refuse_ has no more memory. Blocks have their size in front, for realloc. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AREA = 1 << 30, FAIL_AFTER = 2000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *area;
static size_t used;

static int fails(void)
{
	static unsigned calls;
	if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) < FAIL_AFTER)
		return 0;
#ifdef crash_
	static const char last[] = "bump: out of its depth\n";
	if (write(2, last, sizeof last - 1) < 0)
		_exit(1);
	raise(SIGSEGV);
#endif
#ifdef hang_
	for (;;)
		pause();
#endif
#ifdef refuse_
	return 1;
#endif
	return 0;
}

static void *take(size_t align, size_t bytes)
{
	char *block = NULL;
	if (fails()) {
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_lock(&lock);
	if (!area) {
		area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (area == MAP_FAILED)
			_exit(99);
	}
	size_t at = (used + 16 + align - 1) & ~(align - 1);
	if (bytes < AREA && at + bytes < AREA) {
		block = area + at;
		used = at + bytes;
		memcpy(block - sizeof bytes, &bytes, sizeof bytes);
	} else {
		errno = ENOMEM;
	}
	pthread_mutex_unlock(&lock);
	return block;
}

void *malloc(size_t bytes) { return take(16, bytes); }

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t bytes)
{
	size_t all;
	if (__builtin_mul_overflow(count, bytes, &all))
		return NULL;
	return take(16, all); /* fresh pages are zero */
}

void *realloc(void *block, size_t bytes)
{
	void *to = take(16, bytes);
	if (to && block) {
		size_t before;
		memcpy(&before, (char *)block - sizeof before, sizeof before);
		memcpy(to, block, before < bytes ? before : bytes);
	}
	return to;
}

void *memalign(size_t align, size_t bytes) { return take(align < 16 ? 16 : align, bytes); }

void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }

int posix_memalign(void **into, size_t align, size_t bytes)
{
	*into = memalign(align, bytes);
	return *into ? 0 : ENOMEM;
}
