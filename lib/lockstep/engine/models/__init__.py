"""Networks of the papers, as flat `nn.Sequential`s: any cut between two layers gives two stages."""
