// id: X-36
// name: Memory in memfds and shared mappings
// group: memory
// priority: 1
// expect: memory_limit, ok
// control: memory
// needs-cgroup: yes
// files: probe.h
#include "probe.h"
#include <signal.h>
#include <sys/mman.h>

/* Neither the disk limit nor the size of any process counts these. */
int main(void)
{
    static char block[1 << 20];
    signal(SIGXFSZ, SIG_IGN);
    memset(block, 'x', sizeof block);
    int total = 0;
    for (int i = 0; i < 64; i++) {
        int fd = memfd_create("m", 0);
        for (int mib = 0; mib < 4; mib++)
            if (write(fd, block, sizeof block) == (ssize_t)sizeof block)
                total++;
        if (fd < 0)
            break;
        void *p = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) {
            memset(p, 1, 4 << 20);
            total += 4;
        }
        if (total > 160) {
            breach("shared memory", "160 MiB in a box of 128");
            return 0;
        }
    }
    printf("blocked: after %d MiB\n", total);
    return done();
}
