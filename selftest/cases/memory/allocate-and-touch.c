// id: O-24
// name: Allocate and touch
// group: memory
// priority: 1
// expect: memory_limit
// expect-hit: memory
// control: memory
// needs-cgroup: yes
// victim: yes
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    const int control = getenv("CONTROL") != NULL;
    for (int mib = 1;; mib++) {
        char *p = malloc(1 << 20);
        if (p)
            memset(p, 1, 1 << 20);
        __asm__ volatile("" : : "r"(p) : "memory");
        if (control && mib == 160) {
            puts("BREACH: 160 MiB in a box of 128");
            return 0;
        }
    }
}
