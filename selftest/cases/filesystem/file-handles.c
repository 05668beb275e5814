// id: X-04
// name: File handles
// group: filesystem
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <fcntl.h>

/* The handle of inode 2 opens the host's root where it works (Docker's "shocker"). */
int main(void)
{
    char space[sizeof(struct file_handle) + MAX_HANDLE_SZ] = "";
    struct file_handle *handle = (struct file_handle *)space;
    int id;
    handle->handle_bytes = MAX_HANDLE_SZ;
    FILTERED("name_to_handle_at", name_to_handle_at(AT_FDCWD, "/usr", handle, &id, 0));
    handle->handle_bytes = 8;
    handle->handle_type = 1;
    memcpy(handle->f_handle, "\2\0\0\0\0\0\0\0", 8);
    int root = open("/usr", O_RDONLY | O_DIRECTORY);
    FILTERED("open_by_handle_at", open_by_handle_at(root, handle, O_RDONLY));
    FILTERED("open_by_handle_at bad", open_by_handle_at(-1, handle, O_RDONLY));
    return done();
}
