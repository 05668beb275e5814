// id: X-13
// name: Execute from where one must not
// group: filesystem
// priority: 2
// expect: ok
// control: none
// control-why: flags of the mounts have no switch of their own
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return 42;
    struct stat st;
    int in = open("/proc/self/exe", O_RDONLY);
    int out = open("/dev/shm/x", O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    if (in < 0 || out < 0 || fstat(in, &st) != 0 || sendfile(out, in, NULL, (size_t)st.st_size) < 0)
        return 1;
    close(out);
    if (fork() == 0) {
        execl("/dev/shm/x", "x", "1", NULL);
        blocked("execute in /dev/shm");
        _exit(0);
    }
    int status;
    wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 42)
        breach("execute in /dev/shm", "success");
    return done();
}
