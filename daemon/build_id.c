/* Which build this is: the note that the linker writes into the program (ld --build-id). */
#include "daemon/build_id.h"

#include <link.h>
#include <stddef.h>
#include <string.h>

#include "base/hash.h"

#define BUILD_ID_MAX 32

/* Called for the first object that is listed, the program itself; a note's parts are padded to four
 * bytes. */
static int find_note(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    char *hex = arg;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type != PT_NOTE)
            continue;
        const char *p = (const char *)(info->dlpi_addr + ph->p_vaddr);
        const char *end = p + ph->p_memsz;
        while (p + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = (const void *)p;
            const char *name = p + sizeof(*note);
            const char *desc = name + ((note->n_namesz + 3u) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
                memcmp(name, "GNU", 4) == 0 && note->n_descsz <= BUILD_ID_MAX) {
                hex_write(desc, note->n_descsz, hex);
                return 1;
            }
            p = desc + ((note->n_descsz + 3u) & ~3u);
        }
    }
    return 1; /* only the program itself is asked */
}

const char *build_id(void)
{
    static char hex[2 * BUILD_ID_MAX + 1];
    if (!hex[0]) {
        memcpy(hex, "unknown", 8);
        dl_iterate_phdr(find_note, hex);
    }
    return hex;
}
