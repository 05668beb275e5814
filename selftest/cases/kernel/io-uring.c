// id: O-41
// name: io_uring
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"

int main(void)
{
    char params[120] = {0};
    FILTERED("io_uring_setup", syscall(425, 8, params));
    FILTERED("io_uring_setup bad", syscall(425, 0, 0));
    FILTERED("io_uring_enter", syscall(426, -1, 0, 0, 0, 0, 0));
    FILTERED("io_uring_register", syscall(427, -1, 0, 0, 0));
    return done();
}
