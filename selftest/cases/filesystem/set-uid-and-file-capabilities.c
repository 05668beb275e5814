// id: O-14
// name: Set-uid and file capabilities
// group: filesystem
// priority: 1
// expect: ok
// control: nnp
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <ftw.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && (st->st_mode & S_ISUID))
        breach("set-uid program", path);
    return 0;
}

static void no_new_privs(void)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "NoNewPrivs:", 11) == 0 && atoi(line + 11) != 1)
            breach("NoNewPrivs", "is 0");
    if (f)
        fclose(f);
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* the copy */
        if ((int)geteuid() != atoi(argv[1]) || geteuid() != getuid())
            breach("euid", "changed");
        no_new_privs();
        return 0;
    }
    no_new_privs();

    struct stat st;
    int in = open("/proc/self/exe", O_RDONLY);
    int out = open("x", O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    if (in < 0 || out < 0 || fstat(in, &st) != 0 || sendfile(out, in, NULL, (size_t)st.st_size) < 0)
        return 1;
    close(out);
    if (chown("x", 0, 0) == 0)
        breach("chown to root", "success");
    if (chmod("x", 06755) != 0)
        blocked("chmod 6755");
    struct {
        unsigned magic, data[4];
    } caps = {0x02000001, {~0u, 0, ~0u, 0}};
    REFUSED("security.capability", setxattr("x", "security.capability", &caps, 20, 0), EPERM,
        ENOSYS, EOPNOTSUPP);

    char uid[16];
    snprintf(uid, sizeof uid, "%d", (int)geteuid());
    if (fork() == 0) {
        execl("./x", "x", uid, NULL);
        blocked("execute the copy");
        _exit(0);
    }
    wait(NULL);
    nftw("/usr", visit, 16, FTW_PHYS);
    nftw("/lib", visit, 16, FTW_PHYS);
    nftw("/opt", visit, 16, FTW_PHYS);
    return done();
}
