// id: O-02
// name: Dot-dot climb
// group: filesystem
// priority: 1
// expect: ok
// control: mount
// files: probe.h
#include "probe.h"
#include <fcntl.h>

static void climb_to(const char *target)
{
    char path[4096] = "";
    for (int i = 0; i < 64; i++)
        strcat(path, "../");
    strcat(path, target + (*target == '/'));
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        if (errno == ENOENT || errno == EACCES)
            blocked(target);
        else
            breach(target, errno_name(errno));
        return;
    }
    char text[128] = "";
    if (read(fd, text, sizeof text - 1) >= 0)
        breach(target, text);
}

int main(void)
{
    for (int i = 0; i < 64; i++)
        if (chdir("..") != 0)
            break;
    char cwd[4096] = "";
    if (!getcwd(cwd, sizeof cwd) || strcmp(cwd, "/") != 0)
        breach("cwd", cwd);
    printf("cwd: %s\n", cwd);
    climb_to("/etc/hermes-canary");
    climb_to(env("CANARY_FILE", "/var/tmp/none"));

    if (chdir("/box") != 0)
        perror("/box");
    climb_to("/etc/hermes-canary");
    climb_to(env("CANARY_FILE", "/var/tmp/none"));
    return done();
}
