/* Two functions of Boost.Context, and stacks for them. */
#ifndef FCONTEXT_H
#define FCONTEXT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *fcontext_t;

typedef struct {
  fcontext_t ctx; /* of the caller, to jump back to */
  void *data;
} fcontext_transfer_t;

typedef struct {
  void *sptr; /* the upper end */
  size_t ssize;
} fcontext_stack_t;

fcontext_transfer_t jump_fcontext(fcontext_t to, void *data);
fcontext_t make_fcontext(void *upper_end, size_t size, void (*entry)(fcontext_transfer_t));
fcontext_stack_t create_fcontext_stack(size_t size);
void destroy_fcontext_stack(fcontext_stack_t *stack);

#ifdef __cplusplus
}
#endif
#endif
