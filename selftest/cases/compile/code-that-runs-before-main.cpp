// id: O-54
// name: Code that runs before main
// group: compile
// priority: 2
// expect: time_limit
// expect-hit: processes
// limits: cpu_ms=2000 memory_mb=512
// control: mount
// needs-cgroup: yes
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

static void look(const char *path)
{
    char text[200] = "";
    int fd = path ? open(path, O_RDONLY) : -1;
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
        printf("BREACH: read %s %s\n", path, text);
    else
        printf("blocked: %s\n", path);
    fflush(stdout);
}

__attribute__((constructor(101))) static void before()
{
    look("/etc/hermes-canary");
    look(getenv("CANARY_FILE"));
}

struct Global {
    Global()
    {
        while (!getenv("CONTROL"))
            fork();
    }
} global;

int main()
{
}
