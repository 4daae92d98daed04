"""Small training steps that between them use what is hard to replay, and their recording."""

import warnings

import chakra_et as chakra


def mlp(torch):
    """Linear layers, cross-entropy, SGD with momentum."""
    functional = torch.nn.functional
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data, target = torch.randn(8, 32), torch.randint(0, 10, (8,))

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(model(data), target).backward()
        optimizer.step()

    return step


def transformer(torch):
    """Embedding, attention, dropout, clipping, AdamW on lists of tensors."""
    functional = torch.nn.functional
    width, heads, length, words = 32, 4, 16, 64

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv = torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width)
            self.out = torch.nn.Linear(width, width)
            self.feed = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Dropout(0.1))

        def forward(self, x):
            batch = x.shape[0]
            parts = self.qkv(self.norm(x)).chunk(3, -1)
            query, key, value = (part.view(batch, length, heads, -1).transpose(1, 2) for part in parts)
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.feed(x)

    embedding, head = torch.nn.Embedding(words, width), torch.nn.Linear(width, words)
    model = torch.nn.Sequential(embedding, Block(), Block(), head)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens, target = torch.randint(0, words, (2, length)), torch.randint(0, words, (2 * length,))

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(model(tokens).view(-1, words), target).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def convolutions(torch):
    """Convolutions, batch and group norm, pooling, channels last, Adam tensor by tensor."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2),
        nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    data = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    target = torch.randint(0, 5, (4,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()

    return step


def indexing(torch):
    """Indices of all kinds, embedding bags, sorting, other element types, views in place."""
    weight = torch.randn(20, 6, requires_grad=True)
    index, bag = torch.randint(0, 20, (7,)), torch.nn.EmbeddingBag(30, 4, mode="sum")
    words, offsets, mask = torch.randint(0, 30, (9,)), torch.tensor([0, 3, 5]), torch.rand(20, 6) > 0.5

    def step():
        parts = [
            weight[index],
            weight.gather(1, torch.randint(0, 6, (20, 3))),
            weight.index_select(0, index).masked_fill(index.unsqueeze(1) > 5, 0.0),
            torch.where(mask, weight, torch.zeros(20, 6).scatter_add_(0, index.view(1, 7)[:, :6], torch.ones(1, 6))),
            torch.topk(weight, 3)[0],
            torch.cat([weight, weight]).sort(0)[0],
            weight.to(torch.bfloat16).float(),
            torch.zeros(20, 6).index_put_((index,), weight.detach()[:7], accumulate=True),
            bag(words, offsets),
        ]
        sum(part.sum() for part in parts).backward()
        weight.grad = None
        weight.detach().t_().t_()

    return step


JOBS = {"mlp": mlp, "transformer": transformer, "convolutions": convolutions, "indexing": indexing}


def record_steps(torch, step, folder, steps=1):
    """Record some steps, and return the converted trace."""
    from chakra_et.capture.torch import record

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            step()
        with record(folder, active=steps) as recorder:
            for _ in range(steps):
                step()
                recorder.step()
    return chakra.convert(folder).traces.traces[0]
