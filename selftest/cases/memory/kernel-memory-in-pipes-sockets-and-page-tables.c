// id: X-38
// name: Kernel memory in pipes, sockets and page tables
// group: memory
// priority: 2
// expect: memory_limit, ok
// control: none
// control-why: it would take the host's memory
// limits: memory_mb=64
// victim: yes
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

int main(void)
{
    static char block[65536];
    long kib = 0;
    for (int fds[2], i = 0; i < 400 && pipe2(fds, O_NONBLOCK) == 0; i++) {
        fcntl(fds[1], F_SETPIPE_SZ, 1 << 20);
        for (ssize_t n; (n = write(fds[1], block, sizeof block)) > 0;)
            kib += n / 1024;
    }
    printf("pipes: %ld KiB\n", kib);
    closefrom(3);
    kib = 0;
    for (int fds[2], i = 0; i < 400 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0; i++) {
        int size = 1 << 24;
        setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        for (ssize_t n; (n = write(fds[0], block, sizeof block)) > 0;)
            kib += n / 1024;
    }
    printf("sockets: %ld KiB\n", kib);
    closefrom(3);
    fflush(stdout);
    /* One page per 2 MiB: as much page table as page. */
    volatile char *p = mmap(NULL, 1UL << 40, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED)
        for (size_t at = 0; at < 32UL << 30; at += 2 << 20)
            (void)p[at];
    return done();
}
