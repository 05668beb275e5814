// id: X-29
// name: Execute from a memfd
// group: process
// priority: 1
// expect: ok
// control: nnp
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Running one's own code is allowed; it must be as confined as before. */
static void confined(void)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "NoNewPrivs:", 11) == 0 && atoi(line + 11) != 1)
            breach("NoNewPrivs", "is 0");
        if (strncmp(line, "Seccomp:", 8) == 0 && atoi(line + 8) != 2)
            breach("Seccomp", "is off");
        if (strncmp(line, "CapEff:", 7) == 0 && strtoull(line + 7, NULL, 16) != 0)
            breach("CapEff", "is not empty");
    }
    if (f)
        fclose(f);
}

int main(int argc, char **argv)
{
    (void)argv;
    confined();
    if (argc > 1)
        return 42;
    struct stat st;
    int in = open("/proc/self/exe", O_RDONLY);
    int fd = memfd_create("x", 0);
    if (fd < 0) {
        blocked("memfd_create");
        return done();
    }
    if (fstat(in, &st) != 0 || sendfile(fd, in, NULL, (size_t)st.st_size) < 0)
        return 1;
    if (fork() == 0) {
        char *args[] = {"x", "1", NULL}, *none[] = {NULL};
        fexecve(fd, args, none);
        blocked("fexecve");
        _exit(0);
    }
    int status;
    wait(&status);
    return done();
}
