# nix-build -E 'with import <nixpkgs> {}; callPackage ./packaging/nix {}'
{ lib, buildGoModule }:

buildGoModule rec {
  pname = "corescope";
  version = "0.0.0";
  src = lib.cleanSource ../..;
  # Replace it by the hash that the first build prints, or by null with a directory vendor/.
  vendorHash = lib.fakeHash;

  env.CGO_ENABLED = 0;
  subPackages = [ "cmd/corescope" "cmd/corescope-agent" ];
  ldflags = [ "-s" "-w" "-X main.version=${version}" ];
  # Live tests need root.
  doCheck = false;

  postInstall = ''
    mkdir bin && cp $out/bin/corescope $out/bin/corescope-agent bin/
    make install PREFIX=$out SYSCONFDIR=$out/etc TOOL_PREFIX=corescope-
  '';

  meta = {
    description = "eBPF tools that observe Linux systems";
    homepage = "https://github.com/corescope/corescope";
    license = with lib.licenses; [ asl20 gpl2Only bsd2 ];
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "corescope";
  };
}
