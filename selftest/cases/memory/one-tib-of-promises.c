// id: X-34
// name: One TiB of promises
// group: memory
// priority: 1
// expect: memory_limit
// expect-hit: memory
// control: memory
// needs-cgroup: yes
// files: probe.h
#include "probe.h"
#include <sys/mman.h>

/* The mapping itself may be given (Go and the JVM ask for such), its pages not. */
int main(void)
{
    size_t size = 1UL << 40;
    volatile char *p = MAP_FAILED;
    for (; size >= 1 << 28 && p == MAP_FAILED; size /= 2)
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return 1;
    madvise((void *)p, 1 << 30, MADV_HUGEPAGE);
    madvise((void *)p, 1 << 20, MADV_DONTFORK);
    madvise((void *)p, 1 << 20, MADV_MERGEABLE);
    for (size_t at = 0;; at += 4096) {
        p[at] = 1;
        if (control() && at >= 160 << 20) {
            breach("memory", "160 MiB in a box of 128");
            return 0;
        }
    }
}
