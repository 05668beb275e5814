// id: X-37
// name: Memory in SysV segments that nobody has attached
// group: memory
// priority: 2
// expect: memory_limit, ok
// control: memory
// needs-cgroup: yes
// files: probe.h
#include "probe.h"
#include <sys/ipc.h>
#include <sys/shm.h>

int main(void)
{
    int total = 0;
    for (int i = 0; i < 64; i++) {
        int id = shmget(IPC_PRIVATE, 4 << 20, IPC_CREAT | 0600);
        char *p = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
        if (p == (void *)-1) {
            blocked("shmget");
            break;
        }
        memset(p, 1, 4 << 20);
        shmdt(p);
        total += 4;
        if (total > 160) {
            breach("SysV segments", "160 MiB in a box of 128");
            return 0;
        }
    }
    return done();
}
